"""SQLite: draining with history kept, durable and relaxed, and starting many."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.storage.identifiers import new_ids
from tests.bench.command import BareWorker, Command, drain
from tests.bench.figure import Bench, Contest, Result, Target
from tests.bench.figures.drains import BATCH
from tests.bench.handlers import make_app
from tests.bench.payload import INPUT
from tests.bench.site import AT_ONCE, fill
from tests.bench.sqlite_loop import SqliteLoop

NAMES = ("sqlite_drain", "sqlite_drain_normal", "sqlite_start_many")

JOB = """
insert into holdfast_job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
values (?, ?, 0, 'noop', ?, 5, 0, ?)
"""
QUEUE = "insert into holdfast_queue (job_id, type, priority, available_at) values (?, 'noop', 5, ?)"
TALLY = "insert into holdfast_tally (at, type, started) values (?, 'noop', ?)"


def measure(bench: Bench) -> list[Result]:
    """Measure those asked for, each round on a new file."""
    results = []
    if "sqlite_drain" in bench.wanted:
        results.append(_drain("sqlite_drain", bench, "FULL"))
    if "sqlite_drain_normal" in bench.wanted:
        results.append(_drain("sqlite_drain_normal", bench, "NORMAL"))
    if "sqlite_start_many" in bench.wanted:
        results.append(_start_many(bench))
    return results


def _drain(name: str, bench: Bench, synchronous: Literal["FULL", "NORMAL"]) -> Result:
    jobs = bench.scale.jobs
    settings = {} if synchronous == "FULL" else {"HOLDFAST_SYNCHRONOUS": synchronous}

    def drained(path: Path, kind: type[Command]) -> float:
        url = f"sqlite:///{path}"
        with closing(make_app(url)) as app:
            app.migrate()
        filled = fill(url, "noop", jobs)
        return drain(kind(url, settings=settings), filled, jobs).rate

    def limit(path: Path) -> float:
        with closing(SqliteLoop(path, synchronous, BATCH)) as loop:
            loop.start(jobs)
            return loop.drain()

    ways: dict[str, Callable[[Path], float]] = {
        "ours": lambda path: drained(path, Command),
        "bare worker": lambda path: drained(path, BareWorker),
        "limit": limit,
    }
    rounds = bench.scale.rounds if synchronous == "FULL" else bench.scale.side_rounds
    contest = _contest(rounds, ways)
    return contest.result(
        name,
        "jobs/s",
        limit="bare worker",
        against="bare worker",
        beside={"limit_loop": "limit"},
        target=Target("ratio", contest.ratio("ours", "bare worker"), floor=0.85, goal=0.95),
    )


def _start_many(bench: Bench) -> Result:
    calls = bench.scale.jobs // AT_ONCE

    def measured(path: Path, start: Callable[[sqlite3.Connection], object]) -> float:
        with closing(make_app(f"sqlite:///{path}")) as app:
            app.migrate()
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("pragma synchronous = full")
            begun = time.perf_counter()
            for _ in range(calls):
                connection.execute("begin immediate")
                start(connection)
                connection.execute("commit")
            return calls * AT_ONCE / (time.perf_counter() - begun)

    def ours(path: Path) -> float:
        with closing(make_app(f"sqlite:///{path}")) as app:
            return measured(path, lambda tx: app.start_many(tx, "noop", [INPUT] * AT_ONCE))

    ways = {"ours": ours, "limit": lambda path: measured(path, _by_hand)}
    contest = _contest(bench.scale.rounds, ways)
    share = contest.ratio("ours", "limit")
    return contest.result(
        "sqlite_start_many",
        "jobs/s",
        against="executemany by hand",
        target=Target("ratio", share, floor=0.6, goal=0.8),
    )


def _by_hand(connection: sqlite3.Connection) -> None:
    now, ids = time.time_ns() // 1000, new_ids(AT_ONCE)
    rows = [(id, id, msgspec.json.encode(INPUT).decode(), now) for id in ids]
    connection.executemany(JOB, rows)
    connection.executemany(QUEUE, [(id, now) for id in ids])
    connection.execute(TALLY, (now, AT_ONCE))


def _contest(rounds: int, ways: Mapping[str, Callable[[Path], float]]) -> Contest:
    def on_a_new_file(way: Callable[[Path], float]) -> Callable[[], float]:
        def run() -> float:
            with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
                return way(Path(folder) / "bench.db")

        return run

    return Contest(rounds, {name: on_a_new_file(way) for name, way in ways.items()})
