"""A worker in a process of its own: `python -m tests.chaos.process URL SCENE`; it tells its events as lines of JSON."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from holdfast import Limit
from holdfast.core.events import Event
from holdfast.core.registry import JobType, job_type_of
from holdfast.core.retry import Retry
from holdfast.storage.database import Database
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.worker import capacity
from holdfast.worker.job import Job
from holdfast.worker.options import WorkerOptions
from holdfast.worker.worker import Worker

BATCH = 4
LONG = "1h"
AT_ONCE = Retry(base="100ms", cap="100ms")


class Scene(msgspec.Struct):
    """What one process is told: its lease and slots, and the file that handlers wait for until the test writes it.

    `batch_wait` is how long a part of a batch waits for more; where it is long, calls never end.
    """

    lease: str = "30s"
    slots: int = 10
    gate: str = ""
    write_effect: str = ""
    batch_wait: str = "10ms"


class Lines:
    """An observer that writes lines to standard output."""

    def observe(self, event: Event) -> None:
        tell(event.name, **event.fields)


def tell(name: str, **fields: Any) -> None:
    """Write a line to standard output."""
    os.write(sys.stdout.fileno(), msgspec.json.encode({"name": name, **fields}) + b"\n")


def wait_for(word: Path) -> None:
    """Wait until the test has written a file; a named pipe would hang the test if nobody reads it."""
    while not word.exists():
        time.sleep(0.01)


def types_of(scene: Scene) -> dict[str, JobType]:
    """The handlers that a scene knows."""

    def gated(job: Job[Any]) -> str:
        """Wait, deaf to everything, for the test's word; then write a row in the completing transaction."""
        if job.attempt == 1:
            wait_for(Path(scene.gate))
        with job.complete() as done:
            done.tx.execute(scene.write_effect, [f"attempt {job.attempt}"])
        return f"attempt {job.attempt}"

    async def poison(job: Job[Any]) -> None:
        """Kill the process; the first time not before the test says so."""
        if job.attempt == 1:
            await asyncio.to_thread(wait_for, Path(scene.gate))
        os.abort()

    async def neighbour(job: Job[Any]) -> None:
        """Never end in the process that the poison kills first."""
        if job.attempt == 1:
            await asyncio.Event().wait()

    async def brief(job: Job[Any]) -> None:
        """Take a moment, so that a process which is killed has some running."""
        await asyncio.sleep(0.005)

    async def gathered(jobs: list[Job[Any]]) -> None:
        """Tell which jobs came in one call."""
        tell("gathered", ids=[job.id for job in jobs], keys=[job.input["key"] for job in jobs])
        if scene.batch_wait == LONG:
            await asyncio.Event().wait()

    handlers = {"gated": gated, "poison": poison, "neighbour": neighbour, "brief": brief}
    options: dict[str, Any] = {"retry": AT_ONCE, "lease": scene.lease, "timeout": "1h"}
    types = {
        name: job_type_of(handler, name, Job, options)  # type: ignore[arg-type]
        for name, handler in handlers.items()
    }
    batch: dict[str, Any] = {
        "batch": BATCH,
        "batch_by": "key",
        "batch_wait": scene.batch_wait,
        "limits": [Limit(2 * BATCH, by="key")],
    }
    types["gathered"] = job_type_of(gathered, "gathered", Job, {**options, **batch})  # type: ignore[arg-type]
    return types


def database_of(url: str) -> Database:
    """The database at an address, or in a file."""
    return PostgresDatabase(url) if url.startswith("postgres") else SqliteDatabase(Path(url))


async def main(url: str, scene: Scene) -> int:
    # Everything finished counts as finished just now, so that a process fetches ahead as much as it can.
    capacity.QUICK_S = capacity.CLAIM_AHEAD_S = 60.0
    database = database_of(url)
    options = WorkerOptions(slots=scene.slots, idle_min_ms=20, idle_max_ms=20, idle_jitter_ms=0)
    worker = Worker(database, types_of(scene), options, observer=Lines())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop, number.name)
    report = await worker.run()
    await database.close_async()
    return report.exit_code


if __name__ == "__main__":
    os._exit(asyncio.run(main(sys.argv[1], msgspec.json.decode(sys.argv[2], type=Scene))))
