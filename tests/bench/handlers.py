"""The job types that are measured, each the least a handler of its kind can be, and applications of some of them."""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.app import Holdfast
from holdfast.core.outcome import Continue
from holdfast.worker.job import Job

IO_SECONDS = 0.005
BATCH_SIZE = 1000
CHILDREN = 1000
TYPES_VARIABLE = "BENCH_TYPES"
STAMPS_VARIABLE = "BENCH_STAMPS"
NUMBERED = "noop."
"""Types with this beginning do nothing too: there can be any number of them."""

STAMP = struct.Struct("<qq")
"""What a handler leaves of a numbered job: its number, and when it was called, in nanoseconds of the clock that all
processes of the machine share."""


async def noop(job: Job[Any]) -> None:
    """Do nothing."""


async def wait(job: Job[Any]) -> None:
    """Do what takes 5 ms elsewhere."""
    await asyncio.sleep(IO_SECONDS)


async def batch(jobs: list[Job[Any]]) -> None:
    """Do nothing for many jobs at once."""


async def step(job: Job[Any]) -> Continue | None:
    """Go on until no step is left."""
    left = job.input["left"]
    return Continue("step", {"left": left - 1}) if left else None


def stamper(path: Path) -> Callable[[Job[Any]], Any]:
    """Return a handler that notes when a numbered job was started."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def stamp(job: Job[Any]) -> None:
        at = time.monotonic_ns()
        os.write(file, STAMP.pack(job.input["number"], at))

    return stamp


def read_stamps(path: Path) -> dict[int, float]:
    """Return when each numbered job was started, in seconds."""
    return {number: at / 1e9 for number, at in STAMP.iter_unpack(path.read_bytes())}


def numbered_types(count: int) -> tuple[str, ...]:
    """Return the names of so many types that do nothing."""
    return tuple(f"{NUMBERED}{number}" for number in range(count))


def make_app(
    url: str, types: tuple[str, ...] = ("noop", "wait", "step", "batch", "fan")
) -> Holdfast:
    """Return an application with these types and no others."""
    app = Holdfast(url)
    plain = {"noop": noop, "wait": wait, "step": step}
    for name in types:
        if name == "batch":
            app.job(name, batch=BATCH_SIZE)(batch)
        elif name == "fan":
            _register_fan(app)
        elif name == "stamp":
            app.job(name)(stamper(Path(os.environ[STAMPS_VARIABLE])))
        else:
            app.job(name)(noop if name.startswith(NUMBERED) else plain[name])
    return app


def producer(url: str) -> Holdfast:
    """Return an application that starts jobs of any type and handles none."""
    return Holdfast(url, open_types=True)


def _register_fan(app: Holdfast) -> None:
    @app.job("fan")
    async def fan(job: Job[Any]) -> Continue:
        """Start many chains and go on when all of them have ended."""
        async with job.complete() as done:
            children = await app.start_many(done.tx, "noop", [{}] * CHILDREN)
            return done.continue_with("noop", {}, blockers=children)
