"""How far workers are, seen from outside: the database's own rows and times, looked at so that nobody notices.

While a backlog is drained, only the outcome of its last job is looked up by its key. When that is there, the outcomes
are counted. The times are the database's own: from the first handler's start to the last recorded outcome, so that the
start of a process does not count and everything else does.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import psycopg

LOOK_S = 0.02
COUNT_S = 0.05
SLOWEST_S = 600.0


@dataclass(frozen=True, slots=True)
class Span:
    """Jobs that ended, and the seconds from the first one's start to the last one's outcome."""

    jobs: int
    seconds: float

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.jobs / max(self.seconds, 1e-6)


class Store(Protocol):
    """Looks into the database of the jobs."""

    def close(self) -> None:
        """Close the connection."""

    def has_ended(self, id: str) -> bool:
        """Say whether this job's outcome is recorded."""

    def span(self) -> Span:
        """Count what has ended since the look began."""


class _Postgres:
    def __init__(self, url: str, types: Sequence[str]) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._types = list(types)
        (self._since,) = self._connection.execute("select clock_timestamp()").fetchall()[0]

    def close(self) -> None:
        self._connection.close()

    def has_ended(self, id: str) -> bool:
        found = self._connection.execute(
            "select from holdfast.outcome where job_id = %s::uuid", [id]
        )
        return bool(found.rowcount)

    def span(self) -> Span:
        ((count, seconds),) = self._connection.execute(
            """
            select count(*), coalesce(extract(epoch from max(finished_at) - min(started_at)), 0)::float8
              from holdfast.outcome where finished_at >= %s and type = any (%s)
            """,
            [self._since, self._types],
        ).fetchall()
        return Span(count, seconds)


class _Sqlite:
    def __init__(self, url: str, types: Sequence[str]) -> None:
        self._connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        self._types = msgspec.json.encode(list(types)).decode()

    def close(self) -> None:
        self._connection.close()

    def has_ended(self, id: str) -> bool:
        (count,) = self._one("select count(*) from holdfast_outcome where job_id = ?", id)
        return bool(count)

    def span(self) -> Span:
        count, us = self._one(
            """
            select count(*), coalesce(max(finished_at) - min(started_at), 0) from holdfast_outcome
             where type in (select value from json_each(?))
            """,
            self._types,
        )
        return Span(count, us / 1e6)

    def _one(self, statement: str, parameter: str) -> tuple[Any, ...]:
        row: tuple[Any, ...] = self._connection.execute(statement, (parameter,)).fetchone()
        return row


def open_store(url: str, types: Sequence[str]) -> Store:
    """Look at jobs of these types that end from now on."""
    return _Sqlite(url, types) if url.startswith("sqlite:") else _Postgres(url, types)


def wait_for(store: Store, id: str, check: Callable[[], None]) -> None:
    """Wait for one job's outcome; `check` raises when nobody works any more."""
    _wait_until(lambda: store.has_ended(id), LOOK_S, check)


def wait_for_all(store: Store, last: str, jobs: int, check: Callable[[], None]) -> Span:
    """Wait for as many outcomes, of which `last` is one of the last; return what it took."""
    wait_for(store, last, check)
    _wait_until(lambda: store.span().jobs >= jobs, COUNT_S, check)
    span = store.span()
    if span.jobs != jobs:
        raise RuntimeError(f"{span.jobs} outcomes of {jobs} jobs")
    return span


def _wait_until(happened: Callable[[], bool], pause: float, check: Callable[[], None]) -> None:
    deadline = time.monotonic() + SLOWEST_S
    while not happened():
        check()
        if time.monotonic() > deadline:
            raise RuntimeError(f"not done after {SLOWEST_S:.0f} s")
        time.sleep(pause)
