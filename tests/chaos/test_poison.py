"""Jobs that kill their process, among others that do not, under `holdfast worker --processes 2` as a person runs it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.until import PATIENCE_S, wait_until
from tests.worker.workshop import Workshop

POISON_LIMIT = 3
APPLICATION = """
import asyncio, os, signal, time

from holdfast import Holdfast, Job

app = Holdfast()

# All take so long that others run beside those that kill, until those run alone.

@app.job("abort")
async def abort(job: Job[None]) -> None:
    await asyncio.sleep(0.2)
    os.abort()

@app.job("killed")
def killed(job: Job[None]) -> None:
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)

@app.job("innocent")
async def innocent(job: Job[None]) -> None:
    await asyncio.sleep(0.7)

@app.job("innocent.threaded")
def threaded(job: Job[None]) -> None:
    time.sleep(0.7)
"""


@contextmanager
def supervised(folder: Path, url: str) -> Iterator["subprocess.Popen[str]"]:
    """Have two workers kept at work; neither they nor their supervisor outlive the block."""
    (folder / "shop.py").write_text(APPLICATION)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "worker", "shop:app", "--processes", "2"],
            cwd=folder,
            env=os.environ | {"HOLDFAST_URL": url, "OUTBOX_LEASE_DURATION_MS": "2000"},
            stderr=log,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                for each in psutil.Process(process.pid).children(recursive=True):
                    each.kill()
            process.kill()
            process.wait()


@pytest.mark.timeout(300)
async def test_different_poison_jobs_end_in_the_dead_letters_and_no_innocent_does(
    workshop: Workshop, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    is_postgres = workshop.store.dialect == "postgresql"
    url = (
        request.getfixturevalue("worker_url")
        if is_postgres
        else f"sqlite:///{tmp_path}/holdfast.db"
    )
    poison = [await workshop.start_one(each) for each in ("abort", "killed", "abort")]
    innocent = await workshop.start("innocent", count=10)
    innocent += await workshop.start("innocent.threaded", count=6)
    with supervised(tmp_path, url) as process:
        await asyncio.to_thread(
            wait_until, lambda: not workshop.ledger.live(), patience_s=4 * PATIENCE_S
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    records = await workshop.run(workshop.store.jobs.get([*poison, *innocent]))
    found = {each.id: each for each in records}
    assert {found[each].state for each in innocent} == {"completed"}
    assert {found[each].state for each in poison} == {"failed"}
    for each in poison:
        assert POISON_LIMIT <= found[each].crashes <= POISON_LIMIT + 1, found[each].error
        assert "the last time alone" in (found[each].error or "")
        *_, last = await workshop.attempts(each)
        assert "ran alone" in (last.error or "")
