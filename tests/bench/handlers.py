"""The job types that are measured: each the least a handler of its kind can be."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from holdfast.app import Holdfast
from holdfast.core.outcome import Continue
from holdfast.worker.job import Job

IO_SECONDS = 0.005
BATCH_SIZE = 1000
CHILDREN = 1000

stamps: list[tuple[int, float]] = []
"""When the handler of a numbered job was called, by the clock that all processes of the machine share."""


async def noop(job: Job[Any]) -> None:
    """Do nothing."""


async def wait(job: Job[Any]) -> None:
    """Do what takes 5 ms elsewhere."""
    await asyncio.sleep(IO_SECONDS)


async def stamp(job: Job[Any]) -> None:
    """Note when this job was started."""
    at = time.monotonic()
    stamps.append((job.input["number"], at))


async def batch(jobs: list[Job[Any]]) -> None:
    """Do nothing for many jobs at once."""


async def step(job: Job[Any]) -> Continue | None:
    """Go on until no step is left."""
    left = job.input["left"]
    return Continue("step", {"left": left - 1}) if left else None


def make_app(url: str) -> Holdfast:
    """Return an application with all measured types."""
    app = Holdfast(url)
    for handler in (noop, wait, stamp, step):
        app.job(handler.__name__)(handler)
    app.job("batch", batch=BATCH_SIZE)(batch)

    @app.job("fan")
    async def fan(job: Job[Any]) -> Continue:
        """Start many chains and go on when all of them have ended."""
        async with job.complete() as done:
            children = await app.start_many(done.tx, "noop", [{}] * CHILDREN)
            return done.continue_with("noop", {}, blockers=children)

    return app
