"""How much a worker grows while it drains a large backlog, from its size after the first 10,000 jobs."""

from __future__ import annotations

import time
from contextlib import closing

from tests.bench.command import Command, Running
from tests.bench.figure import Bench, Result, Target, make_result
from tests.bench.progress import open_store, wait_for
from tests.bench.site import fill

NAMES = ("memory",)
MIB = 2**20
LOOK_S = 0.05


def measure(bench: Bench) -> list[Result]:
    """Drain once; a size needs no repetition."""
    jobs = bench.scale.memory_jobs
    with bench.server.database() as url:
        filled = fill(url, "noop", jobs)
        command = Command(url)
        with closing(open_store(url, command.types)) as store, Running(command) as running:
            wait_for(store, filled.early, running.check)
            settled = largest = running.memory_bytes()
            while not store.has_ended(filled.last):
                running.check()
                time.sleep(LOOK_S)
                largest = max(largest, running.memory_bytes())
    grown = (largest - settled) / MIB
    return [
        make_result(
            "memory",
            f"MiB more over {jobs:,} jobs",
            ours=grown,
            beside={"resident_mib": settled / MIB},
            target=Target("MiB", grown, floor=30, goal=10),
        )
    ]
