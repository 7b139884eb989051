"""Measures how many rows should travel to a statement; prints the table of `docs/adr/0002-json-parameters.md`.

    python -m tests.bench.json_parameters [--jobs 40000] [--rounds 5]

The same rows go into the limit loop's tables as arrays that psycopg makes of Python values, as array
literals joined by hand, and as one JSON text; then they are claimed and completed with the same ways.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from holdfast.storage.identifiers import new_id, new_ids
from tests.bench import limit_statements as sql
from tests.bench.limit_loop import ONLY_BY_INDEX, LimitLoop
from tests.bench.machine import cpu_seconds, describe_machine
from tests.bench.payload import INPUT_TEXT, OUTPUT_TEXT
from tests.bench.server import BenchServer

SIZES = (1, 200, 1000, 5000)

START_JSON = """
with written as (
  insert into limit_loop.job (id, chain_id, chain_index, type, input)
  select id, id, 0, type, input from json_to_recordset(%(rows)s::text::json) as x(id uuid, type text, input text)
  returning id, type)
insert into limit_loop.queue (job_id, type) select id, type from written
"""

COMPLETE_JSON = """
with given as materialized (
  select * from json_to_recordset(%(rows)s::text::json) as x(id uuid, token uuid, output text)),
held as (
  select job_id from limit_loop.queue
   where job_id = any (array (select id from given)) and token = any (array (select token from given))
   for update skip locked),
ended as (
  delete from limit_loop.queue q where q.job_id = any (array (select job_id from held))
  returning q.job_id, q.type, q.attempt, q.crashes, q.fence, q.token, q.awaited),
freed as (delete from limit_loop.lease where token = any (array (select token from given limit 1))),
kept as (
  insert into limit_loop.outcome (job_id, type, state, output, attempts, crashes, fence, token, started_at)
  select e.job_id, e.type, 'completed', g.output, e.attempt, e.crashes, e.fence, e.token, now()
    from ended e join given g on g.id = e.job_id)
select job_id::text, awaited from ended
"""


class StartRow(msgspec.Struct):
    """A job as JSON carries it."""

    id: str
    type: str
    input: str


class CompleteRow(msgspec.Struct):
    """A completion as JSON carries it."""

    id: str
    token: str
    output: str


def as_json(rows: list[Any]) -> dict[str, str]:
    """One JSON text for all rows."""
    return {"rows": msgspec.json.encode(rows).decode()}


def literal(values: list[str]) -> str:
    """An array as PostgreSQL reads it, for ids."""
    return "{" + ",".join(values) + "}"


def quoted(values: list[str]) -> str:
    """An array as PostgreSQL reads it, for any text."""
    escaped = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return '{"' + '","'.join(escaped) + '"}'


@dataclass(frozen=True, slots=True)
class Way:
    """One way for rows to travel."""

    start: bytes
    start_given: Callable[[list[str]], dict[str, Any]]
    complete: bytes
    complete_given: Callable[[list[str], str], dict[str, Any]]


def _texts(ids: list[str], text: str) -> list[str]:
    return [text] * len(ids)


WAYS = {
    "arrays by psycopg": Way(
        sql.START.encode(),
        lambda ids: {
            "ids": [UUID(id) for id in ids],
            "types": _texts(ids, "type0"),
            "inputs": _texts(ids, INPUT_TEXT),
        },
        sql.COMPLETE.encode(),
        lambda ids, token: {
            "ids": [UUID(id) for id in ids],
            "outputs": _texts(ids, OUTPUT_TEXT),
            "token": UUID(token),
        },
    ),
    "array literals": Way(
        sql.START.encode(),
        lambda ids: {
            "ids": literal(ids),
            "types": literal(_texts(ids, "type0")),
            "inputs": quoted(_texts(ids, INPUT_TEXT)),
        },
        sql.COMPLETE.encode(),
        lambda ids, token: {
            "ids": literal(ids),
            "outputs": quoted(_texts(ids, OUTPUT_TEXT)),
            "token": token,
        },
    ),
    "one JSON text": Way(
        START_JSON.encode(),
        lambda ids: as_json([StartRow(id, "type0", INPUT_TEXT) for id in ids]),
        COMPLETE_JSON.encode(),
        lambda ids, token: as_json([CompleteRow(id, token, OUTPUT_TEXT) for id in ids]),
    ),
}


@dataclass(slots=True)
class Taken:
    """What one part of a run took for each row."""

    rate: float
    python_us: float
    server_us: float


class Run:
    """One way with statements of one size."""

    def __init__(self, url: str, way: Way, size: int) -> None:
        self._connection = psycopg.connect(
            url, autocommit=True, prepare_threshold=1, options=ONLY_BY_INDEX
        )
        self._way = way
        self._size = size

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def start(self, jobs: int) -> Taken:
        """Write all jobs."""

        def work() -> None:
            for _ in range(jobs // self._size):
                given = self._way.start_given(new_ids(self._size))
                self._connection.execute(self._way.start, given)

        return self._taken(work, jobs)

    def claim(self, jobs: int) -> list[tuple[str, list[str]]]:
        """Claim everything, in the same way for all."""
        claims = []
        for _ in range(jobs // self._size):
            token = new_id()
            given = {
                "types": ["type0"],
                "at": ["2000-01-01"],
                "ids": [UUID(int=0)],
                "room": [self._size],
                "limit": self._size,
                "token": UUID(token),
                "ms": 1,
            }
            rows = self._connection.execute(sql.CLAIM, given).fetchall()
            claims.append((token, [str(row[0]) for row in rows]))
        return claims

    def complete(self, claims: list[tuple[str, list[str]]]) -> Taken:
        """Complete everything that was claimed."""

        def work() -> None:
            for token, ids in claims:
                given = self._way.complete_given(ids, token)
                ended = self._connection.execute(self._way.complete, given).fetchall()
                if len(ended) != len(ids):
                    raise RuntimeError("jobs were lost, though nobody else works here")

        return self._taken(work, sum(len(ids) for _, ids in claims))

    def _taken(self, work: Callable[[], None], rows: int) -> Taken:
        pid = self._connection.info.backend_pid
        server, python, begun = cpu_seconds(pid), time.process_time(), time.perf_counter()
        work()
        seconds = time.perf_counter() - begun
        python, server = time.process_time() - python, cpu_seconds(pid) - server
        return Taken(rows / seconds, python / rows * 1e6, server / rows * 1e6)


def measure(server: BenchServer, way: Way, size: int, jobs: int) -> tuple[Taken, Taken]:
    """Start and complete in a new database."""
    with server.database() as url:
        with LimitLoop(url) as loop:
            loop.create()
        run = Run(url, way, size)
        try:
            started = run.start(jobs)
            return started, run.complete(run.claim(jobs))
        finally:
            run.close()


def print_row(size: int, name: str, runs: list[tuple[Taken, Taken]]) -> None:
    """Print the medians of one way as a line of Markdown."""
    cells = []
    for part in range(2):
        taken = [run[part] for run in runs]
        cells += [
            f"{statistics.median(each.rate for each in taken) / 1000:.1f} k",
            f"{statistics.median(each.python_us for each in taken):.1f}",
            f"{statistics.median(each.server_us for each in taken):.1f}",
        ]
    print(f"| {size:,} | {name} | {' | '.join(cells)} |")


def main() -> None:
    """Measure all ways in turn, for statements of several sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    with BenchServer.wheel() as server:
        print(describe_machine(), server.settings())
        print(
            "| rows | way | start/s | Python µs | server µs | complete/s | Python µs | server µs |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for size in SIZES:
            jobs = min(chosen.jobs, size * 4000)
            runs: dict[str, list[tuple[Taken, Taken]]] = {name: [] for name in WAYS}
            for _ in range(chosen.rounds):
                for name, way in WAYS.items():
                    runs[name].append(measure(server, way, size, jobs))
            for name in WAYS:
                print_row(size, name, runs[name])


if __name__ == "__main__":
    main()
