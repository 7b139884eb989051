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

from holdfast.storage.id_generator import new_ids
from holdfast_bench.handwritten import SQLITE
from holdfast_bench.measurement import Bench, Contest, Result
from holdfast_bench.subject import BareWorkerCommand, WorkerCommand, drain
from holdfast_bench.workload import AT_ONCE, INPUT, fill, make_app, migrate


def measure_sqlite(bench: Bench) -> list[Result]:
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

    def drain_file(path: Path, kind: type[WorkerCommand]) -> float:
        url = f"sqlite:///{path}"
        migrate(url)
        return drain(kind(url, settings=settings), fill(url, "noop", jobs), jobs).rate

    ways: dict[str, Callable[[Path], float]] = {
        "ours": lambda path: drain_file(path, WorkerCommand),
        "baseline": lambda path: drain_file(path, BareWorkerCommand),
    }
    rounds = bench.scale.rounds if synchronous == "FULL" else bench.scale.side_rounds
    contest = _contest(rounds, ways)
    return contest.result(name, "jobs/s", against="bare worker", floor=0.85, goal=0.95)


def _start_many(bench: Bench) -> Result:
    calls = bench.scale.jobs // AT_ONCE

    def measure_starts(path: Path, start: Callable[[sqlite3.Connection], object]) -> float:
        migrate(f"sqlite:///{path}")
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
            return measure_starts(path, lambda tx: app.start_many(tx, "noop", [INPUT] * AT_ONCE))

    ways = {"ours": ours, "baseline": lambda path: measure_starts(path, _by_hand)}
    contest = _contest(bench.scale.rounds, ways)
    return contest.result(
        "sqlite_start_many", "jobs/s", against="executemany by hand", floor=0.6, goal=0.8
    )


def _by_hand(connection: sqlite3.Connection) -> None:
    now, ids = time.time_ns() // 1000, new_ids(AT_ONCE)
    rows = [(id, id, msgspec.json.encode(INPUT).decode(), now) for id in ids]
    connection.executemany(SQLITE["hand_sqlite_job"], rows)
    connection.executemany(SQLITE["hand_sqlite_queue"], [(id, now) for id in ids])
    connection.execute(SQLITE["hand_sqlite_tally"], (now, AT_ONCE))


def _contest(rounds: int, ways: Mapping[str, Callable[[Path], float]]) -> Contest:
    def on_a_new_file(way: Callable[[Path], float]) -> Callable[[], float]:
        def run() -> float:
            with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
                return way(Path(folder) / "bench.db")

        return run

    return Contest(rounds, {name: on_a_new_file(way) for name, way in ways.items()})
