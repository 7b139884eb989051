"""Hand-written PostgreSQL code that ours is measured against: the limit loop, the bare loop, and starts by hand.

The limit loop claims and completes in turn over one synchronous connection. It does what a fenced queue that keeps its
history must do and nothing else; a worker that overlaps Python's part with the server's can pass it. The bare loop
keeps no history, no input and no leases. Both are frozen: they change only with a decision under docs/adr.
Run as a module with an address and a batch size, it drains with one limit loop and prints when that began and ended.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg

from holdfast.storage.id_generator import new_id, new_ids
from holdfast_bench.handwritten import SQL, uuid7
from holdfast_bench.machine import cpu_seconds
from holdfast_bench.workload import INPUT_TEXT, OUTPUT_TEXT

BATCH = 200
"""What the loops claim at once."""

LONG_AGO = "2000-01-01 00:00:00+00"
NIL = UUID(int=0)
# Without it statistics of another moment make a claim collect and sort the whole backlog.
# And with it a stock server would take every statement for one that is worth compiling.
ONLY_BY_INDEX = "-c enable_seqscan=off -c enable_bitmapscan=off -c jit=off"


@dataclass(slots=True)
class LoopResult:
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

    def __init__(self, url: str, batch: int = BATCH, types: int = 1) -> None:
        """Connect."""
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

    def create(self) -> None:
        """Make the tables anew."""
        self._connection.execute(SQL["limit_tables"])

    def empty(self) -> None:
        """Leave nothing in the tables."""
        self._connection.execute(SQL["limit_empty"])

    def vacuum(self) -> None:
        """Bring statistics and visibility up to date, as autovacuum would have in time."""
        self._connection.execute(SQL["limit_vacuum"])

    def seed(
        self, finished: int = 0, delayed: int = 0, unhandled: int = 0, in_flight: int = 0
    ) -> None:
        """Put rows beside which the drain is to be measured."""
        execute, known = self._connection.execute, self._types[0]
        rows = {"input": INPUT_TEXT}
        if finished:
            execute(SQL["limit_seed_finished"], rows | {"count": finished})
        if delayed:
            waiting = {"count": delayed, "type": known, "after": "50 years"}
            execute(SQL["limit_seed_waiting"], rows | waiting)
        if unhandled:
            waiting = {"count": unhandled, "type": "nobody", "after": "0"}
            execute(SQL["limit_seed_waiting"], rows | waiting)
        if in_flight:
            execute(SQL["limit_seed_in_flight"], rows | {"count": in_flight, "type": known})

    def start(self, jobs: int, at_once: int = 1000) -> float:
        """Write jobs; return how many a second."""
        begun, among = time.perf_counter(), self._types
        for first in range(0, jobs, at_once):
            count = min(at_once, jobs - first)
            self._connection.execute(
                SQL["limit_start"],
                {
                    "ids": [uuid7() for _ in range(count)],
                    "types": [among[number % len(among)] for number in range(count)],
                    "inputs": [INPUT_TEXT] * count,
                },
            )
        return jobs / (time.perf_counter() - begun)

    def drain(self) -> LoopResult:
        """Claim and complete until nothing is due."""
        self._marks = dict.fromkeys(self._types, (LONG_AGO, NIL))
        drained = LoopResult(0, 0.0, 0.0, 0.0)
        pid = self._connection.info.backend_pid
        server, python, begun = cpu_seconds(pid), time.process_time(), time.perf_counter()
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
        drained.server_us = (cpu_seconds(pid) - server) / done * 1e6
        return drained

    def start_on(self, connection: psycopg.Connection[Any]) -> None:
        """Write one job in the caller's transaction."""
        row = {"ids": [uuid7()], "types": self._types[:1], "inputs": [INPUT_TEXT]}
        connection.execute(SQL["limit_start"], row)

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
            SQL["limit_claim"],
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
            answer = self._connection.execute(SQL["limit_complete"], given)
            ended = {row[0] for row in answer.fetchall()}
            left = [each for each in left if each not in ended]
        return len(ids)


def drain_bare(url: str, jobs: int, batch: int = BATCH) -> float:
    """Start and drain jobs with the bare loop; return the drained jobs a second."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=1) as connection:
        connection.execute(SQL["bare_tables"])
        for first in range(0, jobs, 1000):
            ids = [uuid7() for _ in range(min(1000, jobs - first))]
            connection.execute(SQL["bare_start"], {"ids": ids})
        mark: tuple[Any, Any] = (LONG_AGO, NIL)
        begun, done = time.perf_counter(), 0
        while True:
            token = uuid7()
            named = {"token": token, "at": mark[0], "id": mark[1], "limit": batch}
            rows = connection.execute(SQL["bare_claim"], named, binary=True).fetchall()
            if not rows:
                return done / (time.perf_counter() - begun)
            mark = max(rows)
            given = {"ids": [row[1] for row in rows], "token": token}
            done += connection.execute(SQL["bare_complete"], given).rowcount


def start_one(connection: psycopg.Connection[Any], type: str, input: str) -> None:
    """Write one chain into our tables in one statement."""
    connection.execute(SQL["hand_one"], {"id": new_id(), "type": type, "input": input})


def start_unnested(connection: psycopg.Connection[Any], type: str, inputs: list[str]) -> None:
    """Write chains into our tables in one statement, parameters as arrays."""
    rows = {"ids": new_ids(len(inputs)), "inputs": inputs, "type": type, "count": len(inputs)}
    connection.execute(SQL["hand_unnest"], rows)


def start_copied(connection: psycopg.Connection[Any], type: str, inputs: list[str]) -> None:
    """Write chains into our tables with COPY, table by table."""
    ids = new_ids(len(inputs))
    with connection.cursor() as cursor:
        with cursor.copy(SQL["hand_copy_job"]) as copy:
            for id, input in zip(ids, inputs, strict=True):
                copy.write_row((id, id, 0, type, input, 5, 0, "now"))
        with cursor.copy(SQL["hand_copy_queue"]) as copy:
            for id in ids:
                copy.write_row((id, type, 5, "now"))
        cursor.execute(SQL["hand_tally"], (type, len(inputs)))


def _drain_alone(url: str, batch: int) -> None:
    with LimitLoop(url, batch) as loop:
        begun = time.monotonic()
        loop.drain()
        print(begun, time.monotonic())


if __name__ == "__main__":
    _drain_alone(sys.argv[1], int(sys.argv[2]))
