"""How long the migrations since the last release keep a producer waiting in a database with a million jobs."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase
from tests.storage.earlier import earlier_database

JOBS = int(os.environ.get("HOLDFAST_UPGRADED_JOBS", "1000000"))
"""Half of them wait; the others have ended."""
MAX_WAIT_S = 0.2
STEPS = {"holdfast.storage.postgres": 20, "holdfast.storage.sqlite": 15}
"""The migrations of the last release, 0.2.0."""

POSTGRES_FILL = (
    "create temp table made as select gen_random_uuid() as id, n from generate_series(1, %(jobs)s) n",
    """insert into earlier.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
       select id, id, 0, 'mail', repeat('x', 100), 5, 0, now() - interval '1 day' from made""",
    """insert into earlier.queue (job_id, type, priority, available_at)
       select id, 'mail', 5, now() + interval '1 day' from made where n %% 2 = 0""",
    """insert into earlier.outcome (job_id, type, state, output, attempts, crashes, fence, finished_at)
       select id, 'mail', 'completed', '1', 1, 0, 1, now() - interval '1 day' from made where n %% 2 = 1""",
    "analyze",
)
POSTGRES_START = """
with new as (insert into earlier.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
             values (%(id)s, %(id)s, 0, 'mail', '1', 5, 0, now()))
insert into earlier.queue (job_id, type, priority, available_at) values (%(id)s, 'mail', 5, now())
"""
SQLITE_FILL = (
    """create temp table made as
       with recursive n(n) as (values (1) union all select n + 1 from n limit :jobs)
       select n, printf('%08x-0000-7000-8000-%012x', random() & 4294967295, n) as id from n""",
    """insert into holdfast_job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
       select id, id, 0, 'mail', printf('%0100d', n), 5, 0, 1 from made order by id""",
    """insert into holdfast_queue (job_id, type, priority, available_at)
       select id, 'mail', 5, 9000000000000000 from made where n % 2 = 0 order by id""",
    """insert into holdfast_outcome (job_id, type, state, output, attempts, crashes, fence, finished_at)
       select id, 'mail', 'completed', '1', 1, 0, 1, 1 from made where n % 2 = 1 order by id""",
    "drop table made",
    "analyze",
)
SQLITE_START = (
    """insert into holdfast_job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
       values (:id, :id, 0, 'mail', '1', 5, 0, 1)""",
    "insert into holdfast_queue (job_id, type, priority, available_at) values (:id, 'mail', 5, 1)",
)


class Producer(threading.Thread):
    """Starts jobs as the version before does, one after the other; remembers when each began and ended."""

    def __init__(self, start: Callable[[], object]) -> None:
        super().__init__()
        self.taken: list[tuple[float, float]] = []
        self.over = threading.Event()
        self._start_job = start
        self.start()

    def run(self) -> None:
        while not self.over.wait(0.002):
            began = time.monotonic()
            self._start_job()
            self.taken.append((began, time.monotonic()))

    def slowest_s(self, since: float, until: float) -> float:
        """The longest start that was under way between two moments."""
        return max(
            ended - began for began, ended in self.taken if ended >= since and began <= until
        )


@contextmanager
def large_database(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> Iterator[tuple[Database, Callable[[], object]]]:
    """A large database of the version before, and what starts a job in it."""
    with earlier_database(request, monkeypatch, folder, STEPS):
        url: str = request.getfixturevalue(kind)
        if kind == "postgres_url":
            with psycopg.connect(url, autocommit=True) as other:
                for each in POSTGRES_FILL:
                    other.execute(each.encode(), {"jobs": JOBS})
                yield (
                    PostgresDatabase(url, "earlier"),
                    lambda: other.execute(POSTGRES_START.encode(), {"id": new_id()}),
                )
            return
        path = url.removeprefix("sqlite:///")
        file = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        for each in SQLITE_FILL:
            file.execute(each, {"jobs": JOBS} if ":jobs" in each else {})

        def start() -> None:
            id = new_id()
            file.execute("begin immediate")
            for each in SQLITE_START:
                file.execute(each, {"id": id})
            file.execute("commit")

        yield SqliteDatabase(path), start
        file.close()


@pytest.mark.lasting
@pytest.mark.parametrize("kind", ["postgres_url", "absent_sqlite_url"])
def test_no_start_waits_long_for_the_migrations_since_the_last_release(
    kind: str, request: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    request.param = kind
    with large_database(kind, request, monkeypatch, tmp_path) as (database, start):
        producer = Producer(start)
        began = time.monotonic()
        time.sleep(3)
        since = time.monotonic()
        database.migrate()
        until = time.monotonic()
        time.sleep(1)
        producer.over.set()
        producer.join()
        database.close()
    before, during = producer.slowest_s(began, since), producer.slowest_s(since, until)
    print(
        f"{kind}: {JOBS:,} jobs, upgraded in {until - since:.2f} s; the slowest of {len(producer.taken):,} starts"
        f" took {1000 * during:.0f} ms meanwhile, {1000 * before:.0f} ms before"
    )
    assert during <= MAX_WAIT_S
