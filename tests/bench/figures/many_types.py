"""A worker of many job types, each with its share of the backlog, beside a worker of one type."""

from __future__ import annotations

from tests.bench.command import Command, drain
from tests.bench.conditions import FRESH
from tests.bench.figure import Bench, Contest, Result, Target
from tests.bench.handlers import numbered_types
from tests.bench.site import fill, refresh

FLOORS = {"drain_20_types": (20, 0.9, 1.0), "drain_200_types": (200, 0.7, 0.9)}
NAMES = tuple(FLOORS)


def measure(bench: Bench) -> list[Result]:
    """Drain the same number of jobs of one type and of many, in turn."""
    jobs = bench.scale.jobs
    wanted = {name: each for name, each in FLOORS.items() if name in bench.wanted}
    with bench.server.database() as url:

        def drained(types: int) -> float:
            refresh(url, FRESH)
            names = numbered_types(types)
            filled = fill(url, names, jobs)
            return drain(Command(url, names), filled, jobs).rate

        counts = {"one": 1} | {name: types for name, (types, _, _) in wanted.items()}
        contest = Contest(
            bench.scale.rounds,
            {name: lambda types=types: drained(types) for name, types in counts.items()},  # type: ignore[misc]
        )
    return [
        contest.result(
            name,
            "jobs/s",
            ours=name,
            limit="one",
            against="one type",
            target=Target("ratio", contest.ratio(name, "one"), floor=floor, goal=goal),
        )
        for name, (_, floor, goal) in wanted.items()
    ]
