"""Runs the limit loop under every condition and prints the table of `docs/adr/0001-table-layout.md`.

python -m tests.bench.limit_conditions [--jobs 40000] [--rounds 5] [--batch 200]
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from dataclasses import dataclass

from tests.bench.conditions import FRESH, Condition, snapshot_held
from tests.bench.limit_loop import LimitLoop
from tests.bench.machine import describe_machine
from tests.bench.server import BenchServer

CONDITIONS = (
    FRESH,
    Condition("5 types", types=5),
    Condition("20 types", types=20),
    Condition("after 500 k finished", finished=500_000),
    Condition("snapshot held, 3 × the jobs", held_snapshot=True),
    Condition("beside 200 k delayed, 200 k unhandled", delayed=200_000, unhandled=200_000),
    Condition("5 000 in flight", in_flight=5_000),
)
IDLE_LOOKS = 20


@dataclass(frozen=True, slots=True)
class Row:
    """One run of the loop under one condition."""

    start_rate: float
    rate: float
    server_us: float
    python_us: float
    start_wal: float
    drain_wal: float
    first_ms: float
    last_ms: float
    idle_ms: float


def run(server: BenchServer, url: str, condition: Condition, jobs: int, batch: int) -> Row:
    """Start and drain once."""
    jobs = jobs * 3 if condition.held_snapshot else jobs
    with LimitLoop(url, batch, condition.types) as loop:
        if condition.is_seeded:
            loop.vacuum()
        else:
            loop.empty()
        with snapshot_held(url, condition.held_snapshot):
            before = server.wal_bytes()
            start_rate = loop.start(jobs)
            started = server.wal_bytes()
            drained = loop.drain()
            ended = server.wal_bytes()
            idle = statistics.median(loop.look() for _ in range(IDLE_LOOKS))
    if drained.jobs != jobs:
        raise RuntimeError(f"{drained.jobs} of {jobs} jobs were drained")
    quarter = max(1, len(drained.looks) // 4)
    return Row(
        start_rate,
        drained.rate,
        drained.server_us,
        drained.python_us,
        (started - before) / jobs,
        (ended - started) / jobs,
        statistics.mean(drained.looks[:quarter]) * 1000,
        statistics.mean(drained.looks[-quarter - 1 : -1]) * 1000,
        idle * 1000,
    )


def print_table(rows: dict[str, list[Row]]) -> None:
    """Print the medians as Markdown."""
    print("| condition | start/s | drain/s (spread) | × fresh | server µs | Python µs ", end="")
    print("| WAL start + drain | claim ms first → last quarter | idle look ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, runs in rows.items():

        def median(field: str, runs: list[Row] = runs) -> float:
            return float(statistics.median(getattr(each, field) for each in runs))

        rates = [each.rate for each in runs]
        pairs = zip(runs, rows[FRESH.name], strict=True)
        share = statistics.median(each.rate / fresh.rate for each, fresh in pairs)
        print(
            f"| {name} | {median('start_rate') / 1000:.1f} k"
            f" | {median('rate') / 1000:.1f} k ({min(rates) / 1000:.1f}–{max(rates) / 1000:.1f})"
            f" | {share:.2f} | {median('server_us'):.1f} | {median('python_us'):.1f}"
            f" | {median('start_wal'):.0f} + {median('drain_wal'):.0f}"
            f" | {median('first_ms'):.1f} → {median('last_ms'):.1f} | {median('idle_ms'):.1f} |"
        )


def main() -> None:
    """Measure all conditions, one after the other in every round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=200)
    chosen = parser.parse_args()
    rows: dict[str, list[Row]] = defaultdict(list)
    with BenchServer.wheel() as server:
        print(describe_machine(), server.settings())
        for _ in range(chosen.rounds):
            for condition in CONDITIONS:
                with server.database() as url:
                    with LimitLoop(url, chosen.batch, condition.types) as loop:
                        loop.create()
                        loop.seed(
                            condition.finished,
                            condition.delayed,
                            condition.unhandled,
                            condition.in_flight,
                        )
                    row = run(server, url, condition, chosen.jobs, chosen.batch)
                rows[condition.name].append(row)
                print(condition.name, row, flush=True)
    print_table(rows)


if __name__ == "__main__":
    main()
