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
from holdfast_bench.handwritten import SQLITE, uuid7
from holdfast_bench.measurement import Bench, Contest, Result
from holdfast_bench.subject import BareWorkerCommand, WorkerCommand, drain
from holdfast_bench.workload import AT_ONCE, INPUT, INPUT_TEXT, OUTPUT_TEXT, fill, make_app, migrate

BATCH = 200
"""What the loop claims at once."""


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

    def limit(path: Path) -> float:
        with closing(SqliteLoop(path, synchronous)) as loop:
            loop.start(jobs)
            return loop.drain()

    ways: dict[str, Callable[[Path], float]] = {
        "ours": lambda path: drain_file(path, WorkerCommand),
        "bare worker": lambda path: drain_file(path, BareWorkerCommand),
        "limit": limit,
    }
    rounds = bench.scale.rounds if synchronous == "FULL" else bench.scale.side_rounds
    contest = _contest(rounds, ways)
    return contest.result(
        name,
        "jobs/s",
        baseline="bare worker",
        against="bare worker",
        beside={"limit_loop": contest.median("limit")},
        floor=0.85,
        goal=0.95,
    )


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
        "sqlite_start_many",
        "jobs/s",
        against="executemany by hand",
        floor=0.6,
        goal=0.8,
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


class SqliteLoop:
    """The limit loop on SQLite: the same protocol over one connection to a new file, a transaction for each claim."""

    def __init__(
        self, path: Path, synchronous: Literal["FULL", "NORMAL"], batch: int = BATCH
    ) -> None:
        """Make the tables."""
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._batch = batch
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute(
            "pragma synchronous = full" if synchronous == "FULL" else "pragma synchronous = normal"
        )
        self._connection.executescript(SQLITE["sqlite_tables"])

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def start(self, jobs: int) -> None:
        """Write jobs, a thousand in a transaction."""
        execute = self._connection.execute
        for first in range(0, jobs, 1000):
            ids = [str(uuid7()) for _ in range(min(1000, jobs - first))]
            now = time.time_ns() // 1000
            execute("begin immediate")
            self._connection.executemany(
                SQLITE["sqlite_start_job"],
                [(id, id, INPUT_TEXT, now) for id in ids],
            )
            self._connection.executemany(
                SQLITE["sqlite_start_queue"],
                [(id, now) for id in ids],
            )
            execute("commit")

    def drain(self) -> float:
        """Claim and complete until nothing is due; return the jobs a second."""
        mark, done, begun = (0, ""), 0, time.perf_counter()
        while True:
            token = str(uuid7())
            rows = self._claim(token, mark)
            if not rows:
                return done / (time.perf_counter() - begun)
            mark = max(rows)
            done += self._complete(token, [row[1] for row in rows])

    def _claim(self, token: str, mark: tuple[int, str]) -> list[tuple[int, str]]:
        execute, now = self._connection.execute, time.time_ns() // 1000
        execute("begin immediate")
        rows = execute(SQLITE["sqlite_claim"], (now, token, *mark, self._batch)).fetchall()
        if rows:
            ids = "[" + ",".join(f'"{row[1]}"' for row in rows) + "]"
            execute(SQLITE["sqlite_lease"], (token, now + 60_000_000, ids))
            execute(SQLITE["sqlite_inputs"], (ids,)).fetchall()
        execute("commit")
        return rows

    def _complete(self, token: str, ids: list[str]) -> int:
        connection, now = self._connection, time.time_ns() // 1000
        connection.execute("begin immediate")
        connection.executemany(
            SQLITE["sqlite_outcome"], [(id, token, OUTPUT_TEXT, now) for id in ids]
        )
        ended = connection.executemany(
            SQLITE["sqlite_delete"], [(id, token) for id in ids]
        ).rowcount
        connection.execute(SQLITE["sqlite_free_lease"], (token,))
        connection.execute("commit")
        return ended
