"""`--app` means the same on every command, and an error about a schema names the command that migrates it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdfast.cli.exit_codes import Exit
from holdfast.cli.main import cli
from tests.cli.conftest import Run

SHOP = """
from holdfast import Holdfast, Job

jobs = Holdfast("sqlite:///mine.db")

@jobs.job("order.charge")
def charge(job: Job[int]) -> int:
    return job.input

if __name__ == "__main__":
    with jobs.transaction() as tx:
        jobs.start(tx, charge, 1)
"""


def leaves(command: click.Command, path: str = "holdfast") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its name."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, f"{path} {name}")


def options(command: click.Command) -> set[str]:
    return {name for each in command.params for name in each.opts}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "shop_for_app_option.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("shop_for_app_option", None)


SPEC = "shop_for_app_option:jobs"


def test_every_command_with_a_database_or_an_application_takes_app() -> None:
    opening = {
        path
        for path, command in leaves(cli)
        if {"--url", "--schema"} & options(command)
        or any(each.name == "argument" for each in command.params)
    } - {"holdfast demo"}
    assert {"holdfast status", "holdfast worker", "holdfast dead list"} <= opening
    assert [p for p, each in leaves(cli) if p in opening and "--app" not in options(each)] == []


def test_commands_look_at_the_application_s_database(run: Run, shop: Path) -> None:
    assert run("migrate", "--app", SPEC).exit_code == 0
    assert (shop / "mine.db").exists()
    started = run("jobs", "start", "order.charge", "7", "--app", SPEC)
    assert started.exit_code == 0
    assert "order.charge" in run("jobs", "list", "--app", SPEC).stdout
    assert run("worker", "--app", SPEC, "--drain").exit_code == 0
    assert "completed" in run("jobs", "list", "--app", SPEC, "-o", "json").stdout
    assert not (shop / "holdfast.db").exists()


def test_a_database_that_is_not_migrated_is_named_with_the_command(run: Run, shop: Path) -> None:
    for command in (("worker", SPEC, "--drain"), ("tick", SPEC)):
        result = run(*command)
        assert result.exit_code == Exit.DATABASE
        assert f"{shop}/mine.db" in result.stderr
        assert f"holdfast migrate --app {SPEC}" in result.stderr


def test_a_producer_s_error_names_the_command_too(shop: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "shop_for_app_option.py"], capture_output=True, text=True, check=False
    )
    assert f"{shop}/mine.db" in ran.stderr
    assert f"run `holdfast migrate --app {SPEC}`" in ran.stderr


def test_the_application_given_twice_or_not_at_all_is_refused(run: Run, shop: Path) -> None:
    assert "given twice" in run("worker", SPEC, "--app", SPEC).stderr
    missing = run("worker")
    assert missing.exit_code == Exit.USAGE
    assert "--app shop.jobs:app" in missing.stderr
    assert "omit --url" in run("status", "--app", SPEC, "--url", "sqlite:///x.db").stderr
