"""The limit loop: claims and completes in turn over one synchronous psycopg connection, written by hand.

It does what a fenced queue that keeps its history must do and nothing else, so a worker's drain is
measured against it. A worker that overlaps Python's part with the server's can pass it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import psycopg

from tests.bench import limit_statements as sql
from tests.bench.machine import cpu_seconds
from tests.bench.payload import INPUT_TEXT, OUTPUT_TEXT

LONG_AGO = "2000-01-01 00:00:00+00"
NIL = UUID(int=0)
# Without it statistics of another moment make a claim collect and sort the whole backlog.
# And with it a stock server would take every statement for one that is worth compiling.
ONLY_BY_INDEX = "-c enable_seqscan=off -c enable_bitmapscan=off -c jit=off"

_made = 0


def uuid7() -> UUID:
    """Make an id as a careful author would by hand: time, counter, randomness."""
    global _made
    _made += 1
    low = (2 << 62) | (uuid4().int & ((1 << 62) - 1))
    return UUID(int=(int(time.time() * 1000) << 80) | (7 << 76) | ((_made & 0xFFF) << 64) | low)


@dataclass(slots=True)
class Drained:
    """What one drain took; `looks` are the claims' durations in order."""

    jobs: int
    seconds: float
    server_us: float
    python_us: float
    looks: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.jobs / self.seconds


class LimitLoop:
    """One connection to a database in which `create` has made the frozen tables."""

    def __init__(self, url: str, batch: int = 200, types: int = 1) -> None:
        self._connection = psycopg.connect(
            url, autocommit=True, prepare_threshold=1, options=ONLY_BY_INDEX
        )
        self._batch = batch
        self._types = [f"type{number}" for number in range(types)]
        self._marks: dict[str, tuple[Any, UUID]] = {}

    def __enter__(self) -> LimitLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @property
    def pid(self) -> int:
        """The server process behind the connection."""
        return self._connection.info.backend_pid

    def create(self) -> None:
        """Make the tables anew."""
        self._connection.execute(sql.TABLES)

    def empty(self) -> None:
        """Leave nothing in the tables."""
        self._connection.execute(sql.EMPTY)

    def vacuum(self) -> None:
        """Bring statistics and visibility up to date, as autovacuum would have in time."""
        self._connection.execute(sql.VACUUM)

    def seed(
        self, finished: int = 0, delayed: int = 0, unhandled: int = 0, in_flight: int = 0
    ) -> None:
        """Put rows beside which the drain is to be measured."""
        execute, known = self._connection.execute, self._types[0]
        rows = {"input": INPUT_TEXT}
        if finished:
            execute(sql.SEED_FINISHED, rows | {"count": finished})
        if delayed:
            execute(sql.SEED_WAITING, rows | {"count": delayed, "type": known, "after": "50 years"})
        if unhandled:
            execute(sql.SEED_WAITING, rows | {"count": unhandled, "type": "nobody", "after": "0"})
        if in_flight:
            execute(sql.SEED_IN_FLIGHT, rows | {"count": in_flight, "type": known})

    def start(self, jobs: int, at_once: int = 1000) -> float:
        """Write jobs; return how many a second."""
        begun, among = time.perf_counter(), self._types
        for first in range(0, jobs, at_once):
            count = min(at_once, jobs - first)
            self._connection.execute(
                sql.START,
                {
                    "ids": [uuid7() for _ in range(count)],
                    "types": [among[number % len(among)] for number in range(count)],
                    "inputs": [INPUT_TEXT] * count,
                },
            )
        return jobs / (time.perf_counter() - begun)

    def drain(self) -> Drained:
        """Claim and complete until nothing is due."""
        self._marks = dict.fromkeys(self._types, (LONG_AGO, NIL))
        drained = Drained(0, 0.0, 0.0, 0.0)
        server, python, begun = cpu_seconds(self.pid), time.process_time(), time.perf_counter()
        while True:
            token, before = uuid7(), time.perf_counter()
            rows = self._claim(token)
            drained.looks.append(time.perf_counter() - before)
            if not rows:
                break
            drained.jobs += self._complete(token, [row[0] for row in rows])
        drained.seconds = time.perf_counter() - begun
        done = max(1, drained.jobs)
        drained.python_us = (time.process_time() - python) / done * 1e6
        drained.server_us = (cpu_seconds(self.pid) - server) / done * 1e6
        return drained

    def look(self) -> float:
        """Return the seconds of one look behind the marks, where nothing is due."""
        before = time.perf_counter()
        self._claim(uuid7())
        return time.perf_counter() - before

    def start_on(self, connection: psycopg.Connection[Any]) -> None:
        """Write one job in somebody's transaction."""
        row = {"ids": [uuid7()], "types": self._types[:1], "inputs": [INPUT_TEXT]}
        connection.execute(sql.START, row)

    def run_one(self) -> float:
        """Claim and complete what is due, once; return when the claim's answer was there."""
        self._marks = dict.fromkeys(self._types, (LONG_AGO, NIL))
        token = uuid7()
        rows = self._claim(token)
        at = time.monotonic()
        if rows:
            self._complete(token, [row[0] for row in rows])
        return at

    def _claim(self, token: UUID) -> list[tuple[Any, ...]]:
        marks, names = self._marks, self._types
        rows = self._connection.execute(
            sql.CLAIM,
            {
                "types": names,
                "at": [marks[name][0] for name in names],
                "ids": [marks[name][1] for name in names],
                "room": [-(-self._batch // len(names))] * len(names),
                "limit": self._batch,
                "token": token,
                "ms": int(time.time() * 1000),
            },
            binary=True,
        ).fetchall()
        for row in sorted(rows, key=lambda row: (row[3], row[0])):
            marks[row[1]] = (row[3], row[0])
        return rows

    def _complete(self, token: UUID, ids: list[UUID]) -> int:
        """Complete all; rows that another loop's look has locked for a moment are tried again."""
        left = ids
        while left:
            outputs = [OUTPUT_TEXT] * len(left)
            given = {"ids": left, "outputs": outputs, "token": token}
            ended = {row[0] for row in self._connection.execute(sql.COMPLETE, given).fetchall()}
            left = [each for each in left if each not in ended]
        return len(ids)
