"""`holdfast worker` as a person runs it, with handlers that obey nobody: it ends all the same, and says who held it."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.until import PATIENCE_S
from tests.worker.workshop import Workshop

SLOTS = 2
CAP_S = 2
APPLICATION = """
import asyncio, time

from holdfast import Holdfast, Job

app = Holdfast()

@app.job("sleeps", timeout="TIMEOUT")
def sleeps(job: Job[None]) -> None:
    print("begins\\n", end="", flush=True)
    time.sleep(3600)

@app.job("deaf", timeout="TIMEOUT")
async def deaf(job: Job[None]) -> None:
    print("begins\\n", end="", flush=True)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

@app.job("blocks", timeout="TIMEOUT")
async def blocks(job: Job[None]) -> None:
    print("begins\\n", end="", flush=True)
    time.sleep(3600)
"""
KINDS = ("sleeps", "deaf", "blocks")


@contextmanager
def working(folder: Path, url: str, timeout: str, type: str) -> Iterator["subprocess.Popen[str]"]:
    """Have a worker at work; it does not outlive the block."""
    (folder / "shop.py").write_text(APPLICATION.replace("TIMEOUT", timeout))
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "holdfast",
            "worker",
            "shop:app",
            "--slots",
            str(SLOTS),
            "--types",
            type,
        ],
        cwd=folder,
        env=os.environ | {"HOLDFAST_URL": url, "WORKER_SHUTDOWN_TIMEOUT_MS": str(CAP_S * 1000)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_lines(process: "subprocess.Popen[str]", count: int) -> None:
    """Wait until so many handlers have begun."""
    assert process.stdout is not None
    for _ in range(count):
        line = process.stdout.readline()
        assert line == "begins\n", process.stderr and process.stderr.read()


@pytest.fixture
def url(workshop: Workshop, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The workshop's database as the command knows it."""
    if workshop.store.dialect == "postgresql":
        return str(request.getfixturevalue("worker_url"))
    return f"sqlite:///{tmp_path}/holdfast.db"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_worker_whose_every_slot_is_stuck_ends_when_told_to(
    workshop: Workshop, url: str, tmp_path: Path, kind: str
) -> None:
    ids = await workshop.start(kind, count=3 * SLOTS)
    begun = 1 if kind == "blocks" else SLOTS
    with working(tmp_path, url, "1h", kind) as process:
        await asyncio.to_thread(read_lines, process, begun)
        told = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, said = await asyncio.to_thread(process.communicate, timeout=PATIENCE_S)
        took = time.monotonic() - told
    assert process.returncode == 1, said
    # On a busy machine everything takes longer; without the fix it never ended.
    assert took < CAP_S + 15
    named = re.findall(
        rf"{kind} \(job ([0-9a-f-]+), for \d+ s, at \S*shop.py:\d+ in {kind}\)", said
    )
    assert len(named) == begun, said
    records = await workshop.run(workshop.store.jobs.get(ids))
    states = {each.id: (each.state, each.attempt) for each in records}
    # What was running is left to its lease; what had not begun is free at once.
    assert {states.pop(each) for each in named} == {("running", 1)}
    assert set(states.values()) == {("pending", 0)}


async def test_a_worker_whose_every_slot_is_stuck_ends_at_its_own_limits(
    sqlite_workshop: Workshop, tmp_path: Path
) -> None:
    started = {kind: await sqlite_workshop.start(kind, count=3 * SLOTS) for kind in KINDS}
    url = f"sqlite:///{tmp_path}/holdfast.db"
    with ExitStack() as stack:
        # Its patience is long, so all kinds try it at once.
        workers = [stack.enter_context(working(tmp_path, url, "1s", kind)) for kind in KINDS]
        ends = [asyncio.to_thread(each.communicate, timeout=PATIENCE_S) for each in workers]
        answers = await asyncio.gather(*ends)
    for kind, process, (_, said) in zip(KINDS, workers, answers, strict=True):
        assert process.returncode == 1, said
        assert re.search(rf"{kind} \(job [0-9a-f-]+, for \d+ s, at \S*shop.py:\d+", said), said
        records = await sqlite_workshop.run(sqlite_workshop.store.jobs.get(started[kind]))
        # Those that ran out of time have cost an attempt, the others none.
        assert {each.state for each in records} == {"pending"}
        assert sum(each.attempt for each in records) == (1 if kind == "blocks" else SLOTS)
