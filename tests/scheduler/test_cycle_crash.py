"""A process killed in the middle of a cycle: its slot runs again under the same key, its run is told apart."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from holdfast import Holdfast
from holdfast.commands.cycles import request_cycle
from holdfast.scheduler.cycle_run import CycleRun
from holdfast.settings import load_settings
from holdfast.storage.id_generator import new_id
from tests.support.until import PATIENCE_S, breath

LEASE_MS = 60_000
EXPIRE = {
    "sqlite": "update holdfast_cycle_slot set expires_at = 1 where state = 'running'",
    "postgresql": "update holdfast.cycle_slot set expires_at = 'epoch' where state = 'running'",
}
Process: TypeAlias = subprocess.Popen[str]
APPLICATION = """
import time
from holdfast import Holdfast

app = Holdfast()

@app.cycle("cleanup", every=EVERY, missed="all(100)")
def cleanup(run):
    print(run.key, flush=True)
    time.sleep(600)
"""


@pytest.fixture(params=["sqlite_url", "postgres_url"], ids=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    url: str = request.getfixturevalue(request.param)
    monkeypatch.setenv("HOLDFAST_URL", url)
    monkeypatch.setenv("OUTBOX_LEASE_DURATION_MS", str(LEASE_MS))
    return url


@asynccontextmanager
async def hanging_tick(folder: Path, every: str) -> AsyncIterator[tuple[Process, str]]:
    """A process whose tick hangs in the cycle, and the key it was told."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with tick_process(folder, every) as process:
                assert process.stdout is not None
                told = (await asyncio.to_thread(process.stdout.readline)).strip()
                # A tick that comes before its slot finds nothing to do, ends, and prints its table.
                if told.startswith("cleanup:"):
                    yield process, told
                    return


@contextmanager
def tick_process(folder: Path, every: str) -> Iterator[Process]:
    """A process of one tick; it does not outlive the block."""
    (folder / "stuck.py").write_text(APPLICATION.replace("EVERY", repr(every)))
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "tick", "stuck:app"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("every", ["1s", "1h"], ids=["scheduled", "requested"])
async def test_a_slot_whose_process_was_killed_runs_again_with_its_key(
    url: str, tmp_path: Path, every: str
) -> None:
    keys: list[str] = []
    app = Holdfast()

    @app.cycle("cleanup", every=every, missed="all(100)")
    async def cleanup(run: CycleRun) -> None:
        keys.append(run.key)

    app.migrate()
    tick = app.assembly(load_settings()).tick()
    await tick.run()
    if every == "1h":
        await app.database.run_async(request_cycle(app.database.store, "cleanup", new_id()))
    async with hanging_tick(tmp_path, every) as (process, killed):
        await tick.run()
        assert keys == [], "the slot belongs to a living process"
        process.send_signal(signal.SIGKILL)
        process.wait()
    async with app.transaction() as tx:
        await tx.execute(EXPIRE[app.database.store.dialect])
    async with asyncio.timeout(PATIENCE_S):
        while not keys:
            await tick.run()
            await breath()
    await tick.run()
    assert keys[0] == killed
    assert len(keys) == len(set(keys))
    page = app.database.store.runs.page(1_000, LEASE_MS, "cleanup")
    crashed, again, *_ = reversed(await app.database.read_async(page))
    assert (crashed.outcome, again.outcome) == ("crashed", "completed")
    assert crashed.slot == again.slot
    await tick.close()
    await app.aclose()
