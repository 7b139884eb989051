"""The public names are few, pinned, typed, and cost nothing until they are used."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import holdfast

NAMES = {
    "Aborted",
    "AttemptInfo",
    "Busy",
    "Cancel",
    "Chain",
    "ChildFailed",
    "CompletedChain",
    "Continue",
    "CycleRun",
    "Fair",
    "Holdfast",
    "HoldfastError",
    "Job",
    "JobInfo",
    "Keep",
    "Lease",
    "Limit",
    "Ordered",
    "Page",
    "Permanent",
    "Rate",
    "Retry",
    "RunInfo",
    "Seal",
    "Sealed",
    "Sealer",
    "Shard",
    "SignalTimeout",
    "Snooze",
    "Start",
    "StepFailed",
    "SyncJob",
    "__version__",
    "current_step",
    "errors",
    "from_env",
}


def test_the_public_names_are_these() -> None:
    assert set(holdfast.__all__) == NAMES
    assert set(dir(holdfast)) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_name_can_be_imported(name: str) -> None:
    assert getattr(holdfast, name) is not None


def test_another_name_is_an_ordinary_mistake() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Holdfats'"):
        getattr(holdfast, "Holdfats")  # noqa: B009


def test_errors_are_reached_in_a_fresh_process() -> None:
    script = "from holdfast import errors; print(errors.InputInvalid.code)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "HF022"


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = "import sys, holdfast; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    heavy = {"asyncio", "click", "msgspec", "psycopg", "rich", "sqlalchemy", "sqlite3"}
    assert heavy.isdisjoint(done.stdout.split())


def test_importing_the_package_is_quick() -> None:
    def milliseconds() -> float:
        command = [sys.executable, "-X", "importtime", "-c", "import holdfast"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        match = re.search(r"\|\s+(\d+) \| holdfast$", done.stderr, re.MULTILINE)
        assert match is not None
        return int(match[1]) / 1000

    # The least of some runs: a busy machine says nothing about the package.
    assert min(milliseconds() for _ in range(5)) < 80


def test_errors_have_an_address_of_their_own() -> None:
    from holdfast.core.errors import LeaseLost

    assert holdfast.errors.LeaseLost is LeaseLost
