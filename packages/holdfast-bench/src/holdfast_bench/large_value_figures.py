"""Large inputs in their rows and in files: how long a start takes, and a run until its result is recorded.

`python -m holdfast_bench.large_value_figures` prints a table for each database that can be started here.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time

from holdfast.app import Holdfast
from holdfast.worker.job import Job
from holdfast.worker.options import WorkerOptions
from holdfast_bench.servers import ONE, start_servers
from holdfast_files import add_large_values

MIB = 1024 * 1024
SIZES = (MIB, 10 * MIB)
ROUNDS = 7
_ROOM = 1024


def _application(url: str, folder: str | None) -> Holdfast:
    app = Holdfast(url, hints=False, payload_limit=MIB if folder else 16 * MIB)
    if folder is not None:
        add_large_values(app, folder, over="256KB")

    @app.job("measure")
    async def measure(job: Job[str]) -> int:
        return len(job.input)

    app.migrate()
    return app


async def _measure(app: Holdfast, size: int) -> tuple[float, float]:
    """Return the medians of start with its commit, and of a worker's claim, read, run and end, in milliseconds."""
    starts, runs = [], []
    for each in range(ROUNDS):
        value = f"{each}" + "x" * (size - _ROOM)
        began = time.perf_counter()
        async with app.transaction() as tx:
            chain = await app.start(tx, "measure", value)
        starts.append(time.perf_counter() - began)
        worker = app.make_worker(WorkerOptions(name="figures", stop_when_idle=True, max_items=1))
        began = time.perf_counter()
        await worker.run()
        runs.append(time.perf_counter() - began)
        if (await app.aio.chains.get(chain)).output != len(value):
            raise AssertionError("the handler got another value")
    await app.aclose()
    return statistics.median(starts) * 1000, statistics.median(runs) * 1000


def main() -> None:
    """Measure and print."""
    print("| database | size | kept in | start, ms | run, ms |")
    print("|---|---|---|---|---|")
    with start_servers(ONE) as (servers, _), tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            for place in ("row", "file"):
                _print("SQLite", f"sqlite:///{folder}/{place}{size}.db", size, place)
                for server in servers:
                    with server.database() as url:
                        _print("PostgreSQL", url, size, place)


def _print(database: str, url: str, size: int, place: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        app = _application(url, folder if place == "file" else None)
        start, run = asyncio.run(_measure(app, size))
    print(f"| {database} | {size // MIB} MB | {place} | {start:.1f} | {run:.1f} |")


if __name__ == "__main__":
    main()
