"""The application under measurement: `holdfast worker holdfast_bench.worker_app:app`, its types in BENCH_TYPES.

Run as a module, it is the bare worker: the worker object without scheduler, log and hints around it, with the claims
that suited it best by hand. The difference is what the command costs.
"""

from __future__ import annotations

import asyncio
import os
import signal

from holdfast.cli.serving_process import tune_interpreter
from holdfast.worker.options import WorkerOptions
from holdfast.worker.worker import Worker
from holdfast_bench.workload import EXTENSIONS_VARIABLE, TYPES_VARIABLE, make_app

BARE = WorkerOptions(slots=50, batch=200)

app = make_app(
    os.environ["HOLDFAST_URL"],
    tuple(os.environ[TYPES_VARIABLE].split(",")),
    os.environ.get(EXTENSIONS_VARIABLE, ""),
)


async def work() -> None:
    """Run one bare worker until SIGTERM."""
    worker = Worker(app.database, {each.name: each for each in app.registry}, BARE)
    tune_interpreter(app.database.store.dialect)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, worker.stop, "SIGTERM")
    await worker.run()
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(work())
