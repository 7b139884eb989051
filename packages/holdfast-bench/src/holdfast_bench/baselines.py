"""Hand-written PostgreSQL code that ours is measured against: the limit loop, a listener, and starts by hand.

The limit loop claims and completes in turn over one synchronous connection. It does what a fenced queue that keeps its
history must do and nothing else; a worker that overlaps Python's part with the server's can pass it. It is frozen: it
changes only with a decision under docs/adr.
Run as a module, `drain URL` drains with one limit loop and prints when that began and ended; `listen URL FILE` is the
least worker that a job which comes alone needs: LISTEN, and for every notification a claim, a stamp and a completion.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from holdfast.storage.id_generator import new_id, new_ids
from holdfast_bench.handwritten import SQL, uuid7
from holdfast_bench.machine import cpu_seconds
from holdfast_bench.workload import BEFORE, INPUT_TEXT, OUTPUT_TEXT, write_stamp

BATCH = 200
"""What the loop claims at once."""

BY_HAND = "holdfast by hand"
"""What its sessions are called, so that their processor time is counted as ours is."""
LONG_AGO = "2000-01-01 00:00:00+00"
NIL = UUID(int=0)
# Without it statistics of another moment make a claim collect and sort the whole backlog.
# And with it a stock server would take every statement for one that is worth compiling.
ONLY_BY_INDEX = "-c enable_seqscan=off -c enable_bitmapscan=off -c jit=off"


class LimitLoop:
    """One connection to a database in which `create` has made the frozen tables."""

    def __init__(self, url: str, batch: int = BATCH, types: int = 1) -> None:
        """Connect."""
        self._connection = psycopg.connect(
            url,
            autocommit=True,
            prepare_threshold=1,
            options=ONLY_BY_INDEX,
            application_name=BY_HAND,
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

    def drain(self) -> float:
        """Claim and complete until nothing is due; return the jobs a second."""
        self._marks = dict.fromkeys(self._types, (LONG_AGO, NIL))
        done, begun = 0, time.perf_counter()
        while True:
            token = uuid7()
            rows = self._claim(token)
            if not rows:
                return done / (time.perf_counter() - begun)
            done += self._complete(token, [row[0] for row in rows])

    def run_one(self, handle: Callable[[], None] = lambda: None) -> None:
        """Claim what is due, once; handle and complete it."""
        self._marks = dict.fromkeys(self._types, (LONG_AGO, NIL))
        token = uuid7()
        if rows := self._claim(token):
            handle()
            self._complete(token, [row[0] for row in rows])

    def server_seconds(self) -> float:
        """Return the processor time of its session."""
        return cpu_seconds(self._connection.info.backend_pid)

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


def start_lone(connection: psycopg.Connection[Any], number: int) -> None:
    """Write one job of the limit loop in the caller's transaction, and notify its listener."""
    row = {"ids": [uuid7()], "types": ["type0"], "inputs": [INPUT_TEXT]}
    connection.execute(SQL["limit_start"], row)
    connection.execute(SQL["hand_notify"], [str(number)])


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


def listen(url: str, stamps: Path) -> None:
    """Handle jobs that come one by one, until the process is stopped."""
    file = os.open(stamps, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with (
        LimitLoop(url, 1) as loop,
        psycopg.connect(url, autocommit=True, application_name=BY_HAND) as connection,
    ):
        connection.execute(SQL["hand_listen"])
        # Stamped when it listens, as the handler of a first job.
        write_stamp(file, BEFORE)
        for notification in connection.notifies():
            number = int(notification.payload)
            loop.run_one(lambda number=number: write_stamp(file, number))  # type: ignore[misc]


def _drain_alone(url: str) -> None:
    with LimitLoop(url) as loop:
        begun = time.monotonic()
        loop.drain()
        print(begun, time.monotonic())


if __name__ == "__main__":
    action, url, *rest = sys.argv[1:]
    if action == "drain":
        _drain_alone(url)
    else:
        # Ended as the worker is, by SIGTERM and well.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        listen(url, Path(rest[0]))
