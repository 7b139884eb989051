"""The worker under measurement, in a process of its own: its memory and its collector are nobody else's.

It says `ready`, waits for `go`, works until its jobs are done or its input ends, and reports as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import Literal

import msgspec
import psutil

from holdfast.app import Holdfast
from holdfast.cli.interpreter import make_ours
from holdfast.storage.database import Database
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.worker.options import WorkerOptions
from holdfast.worker.worker import Worker
from tests.bench import handlers

WATCH_S = 0.005
WATCH_IDLE_S = 0.5
SETTLED_AFTER = 10_000


class Spec(msgspec.Struct, frozen=True):
    """What to run. `jobs` is how many attempts end it; None waits until the input ends."""

    url: str
    types: tuple[str, ...]
    jobs: int | None = None
    slots: int = 10
    batch: int = 50
    hints: bool = False
    synchronous: Literal["FULL", "NORMAL"] = "FULL"


class Report(msgspec.Struct, frozen=True):
    """What came of it. Times are of the clock that all processes share; sizes are bytes."""

    processed: int
    begun_at: float
    ended_at: float
    cpu_seconds: float
    settled_rss: int
    largest_rss: int
    stamps: list[tuple[int, float]]


@dataclass(slots=True)
class Watch:
    """What is seen of a worker while it runs."""

    processed: int = 0
    begun_at: float = 0.0
    ended_at: float = 0.0
    settled_rss: int = 0
    largest_rss: int = 0

    async def follow(self, worker: Worker, jobs: int | None) -> None:
        """Look at the counters until all is done, then stop the worker."""
        process, pause = psutil.Process(), WATCH_S
        while jobs is None or self.processed < jobs:
            await asyncio.sleep(pause)
            now, count = time.monotonic(), worker.counters.processed
            pause = min(pause * 2, WATCH_IDLE_S)
            if count != self.processed:
                self.processed, self.ended_at, pause = count, now, WATCH_S
            if count >= SETTLED_AFTER:
                rss = process.memory_info().rss
                self.settled_rss = self.settled_rss or rss
                self.largest_rss = max(self.largest_rss, rss)
        worker.stop("all is done")


def database_of(app: Holdfast, spec: Spec) -> Database:
    """Return the application's database; a SQLite file that is not FULL has to be opened by hand."""
    if spec.synchronous == "FULL":
        return app.database
    return SqliteDatabase(spec.url.removeprefix("sqlite:///"), spec.synchronous)


async def work(spec: Spec) -> Report:
    """Run one worker as the specification says."""
    app = handlers.make_app(spec.url)
    database = database_of(app, spec)
    worker = Worker(
        database,
        {each.name: each for each in app.registry if each.name in spec.types},
        WorkerOptions(slots=spec.slots, batch=spec.batch),
        notifier=app.notifier if spec.hints else None,
    )
    make_ours()
    _say("ready")
    await asyncio.to_thread(_hear)
    # A worker that ends by itself leaves this thread waiting for input.
    threading.Thread(target=_stop_at_end_of_input, args=(worker,), daemon=True).start()
    watch = Watch(begun_at=time.monotonic())
    spent = time.process_time()
    following = asyncio.create_task(watch.follow(worker, spec.jobs))
    await worker.run()
    spent = time.process_time() - spent
    following.cancel()
    await database.close_async()
    await app.aclose()
    return Report(
        worker.counters.processed,
        watch.begun_at,
        watch.ended_at,
        spent,
        watch.settled_rss,
        watch.largest_rss,
        handlers.stamps,
    )


def _stop_at_end_of_input(worker: Worker) -> None:
    _hear()
    # The loop is closed when the worker ended by itself.
    with contextlib.suppress(RuntimeError):
        worker.stop("told to")


def _hear() -> None:
    """Wait for a word; unbuffered, because a thread that waits in a buffer's lock breaks the interpreter's end."""
    os.read(sys.stdin.fileno(), 64)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    report = asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Spec)))
    _say(msgspec.json.encode(report).decode())
