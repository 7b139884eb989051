"""Where the simulation runs, nothing reads a clock, draws at random or starts a thread by itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
import holdfast_streams

STREAMS = Path(holdfast_streams.__file__).parent
FOLDERS = [
    *(
        Path(holdfast.__file__).parent / name
        for name in ("commands", "scheduler", "steps", "worker")
    ),
    Path(holdfast.__file__).parent / "storage" / "store",
]
BANNED = frozenset({"random", "secrets", "time", "threading", "uuid"})
CALLS = frozenset({"urandom", "uuid1", "uuid4", "now", "utcnow", "today", "Thread"})

SEAMS = {
    "worker/clock.py": "the clock itself",
    "worker/wakes.py": "starts the heartbeat's thread, for which the simulation has a loop",
    "worker/handler_threads.py": "threads for sync handlers",
    "worker/child.py": "another process",
    "steps/dry_run.py": "a tool for tests",
}
"""Where it is right, and why."""

LOCKS = frozenset({"Event", "Lock"})
"""What `threading` is used for beside threads: with one thread they never wait."""


def uses(source: str) -> Iterator[str]:
    """Find uses of what is banned."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if (
                module in BANNED and name != "tzinfo"
            ):
                if not (module == "threading" and name in LOCKS):
                    yield f"{module}.{name}"
            case ast.ImportFrom(module=str(module), names=names) if module in BANNED:
                yield from (
                    f"{module}.{each.name}"
                    for each in names
                    if each.name != "UUID" and each.name not in LOCKS
                )
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="os" | "datetime" | "date"), attr=name)
            ):
                if name in CALLS:
                    yield name
            case _:
                pass


def modules() -> Iterator[tuple[str, Path]]:
    """Every module where the simulation runs, by the folder and the name."""
    for folder in FOLDERS:
        for path in sorted(folder.rglob("*.py")):
            yield f"{folder.name}/{path.relative_to(folder)}", path
    for path in sorted([*STREAMS.glob("*.py"), STREAMS / "relay" / "relay.py"]):
        yield f"streams/{path.relative_to(STREAMS)}", path


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=lambda each: str(each)[-30:])
def test_clock_randomness_and_threads_are_injected(name: str, path: Path) -> None:
    found = list(uses(path.read_text("utf-8")))
    assert not found or name in SEAMS, found


def test_every_seam_is_one() -> None:
    paths = dict(modules())
    assert [name for name in SEAMS if not list(uses(paths[name].read_text("utf-8")))] == []


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.monotonic()",
        "from time import sleep",
        "import random\nrandom.random()",
        "import os\nos.urandom(4)",
        "from uuid import uuid4",
        "import threading\nthreading.Thread()",
        "from datetime import datetime\ndatetime.now()",
    ],
)
def test_a_use_is_found(source: str) -> None:
    assert list(uses(source))
