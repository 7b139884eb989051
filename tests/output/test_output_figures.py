"""How fast a handler can emit, and how soon a reader in another process has it; `pytest -s -m lasting` prints both."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast_output import add_output

pytestmark = pytest.mark.lasting

BURST = 50_000
PACED = 1_000
READERS = 24

APPLICATION = """
import asyncio, time
from holdfast import Holdfast, Job
from holdfast_output import add_output

app = Holdfast()
output = add_output(app)

@app.job("burst")
def burst(job: Job[int]) -> float:
    began = time.perf_counter()
    for number in range(job.input):
        job.emit("token ")
    return time.perf_counter() - began

@app.job("paced")
async def paced(job: Job[int]) -> None:
    for number in range(job.input):
        job.emit(time.time())
        await asyncio.sleep(0.005)
"""


@contextmanager
def worker_process(folder: Path, url: str) -> Iterator[None]:
    """Have a worker at work in a process of its own."""
    (folder / "figures.py").write_text(APPLICATION)
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "worker", "figures:app"],
        cwd=folder,
        env=os.environ | {"HOLDFAST_URL": url},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_thousands_of_items_a_second_reach_dozens_of_readers(
    database: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = request.getfixturevalue(f"{database}_url")
    app = Holdfast(url, open_types=True)
    output = add_output(app)
    with worker_process(tmp_path, url):
        with app.transaction() as tx:
            chain = app.start(tx, "burst", BURST)
        spent = app.chains.wait(chain, timeout="120s").output
        ran = app.jobs.list()[0]
        assert ran.started_at is not None
        assert ran.finished_at is not None
        whole = (ran.finished_at - ran.started_at).total_seconds()
        assert len(output.read(chain)) == BURST
        print(f"\n{database}: {BURST / spent:,.0f} emits/s, {BURST / whole:,.0f}/s written")

        with app.transaction() as tx:
            chain = app.start(tx, "paced", PACED)
        delays: list[list[float]] = [[] for _ in range(READERS)]

        def read(into: list[float]) -> None:
            for item in output.follow(chain, timeout="60s"):
                into.append(time.time() - item.data)

        threads = [threading.Thread(target=read, args=(each,)) for each in delays]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert [len(own) for own in delays] == [PACED] * READERS
    cuts = statistics.quantiles([delay * 1000 for own in delays for delay in own], n=100)
    print(f"{database}: {READERS} readers, p50 {cuts[49]:.0f} ms, p99 {cuts[98]:.0f} ms")
    app.close()
