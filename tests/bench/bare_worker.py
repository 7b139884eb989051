"""The bare worker object in a process of its own, without the command around it: the second figure beside ours.

It has no runtime, no log and no hints, and claims as large as it was given: what the command's surroundings cost shows
in the difference. Run as `python -m tests.bench.bare_worker '{"url": …}'`, it works until SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import msgspec

from holdfast.cli.interpreter import make_ours
from holdfast.worker.options import WorkerOptions
from holdfast.worker.worker import Worker
from tests.bench.handlers import make_app

SLOTS = 50
BATCH = 200


class Spec(msgspec.Struct, frozen=True):
    """What to run."""

    url: str
    types: tuple[str, ...]


async def work(spec: Spec) -> None:
    """Run one worker until told to stop."""
    app = make_app(spec.url, spec.types)
    worker = Worker(
        app.database,
        {each.name: each for each in app.registry},
        WorkerOptions(slots=SLOTS, batch=BATCH),
    )
    make_ours()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, worker.stop, "told to")
    await worker.run()
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Spec)))
