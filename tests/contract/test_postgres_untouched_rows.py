"""A flush deletes rows that only their claim has touched without locking them first, and is fenced all the same."""

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg import Connection, sql

from holdfast.core.records import Claim, ClaimedJob, Finish, LeaseClass, NewJob, Probe
from holdfast.storage.id_generator import new_id
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.postgres.store import as_texts, postgres_statements
from holdfast.storage.sql_loader import DEFAULT_SCHEMA
from tests.contract.buffers import execution, prepare
from tests.support.until import PATIENCE_S, wait_until

JOBS = 150
FLUSHES = pytest.mark.parametrize("size", [1, 10], ids=["one", "several"])
UNTOUCHED = "q.xmin)"
UNTOUCHED_THEN_WAIT = "q.xmin) and (select true from pg_advisory_xact_lock_shared(7))"
WAITS = (
    "select count(*) > 0 from pg_locks l join pg_stat_activity a on a.pid = l.pid"
    " where not l.granted and a.datname = current_database() and l.locktype = any (%s)"
)


@pytest.fixture(params=["postgres_url", "other_postgres_url"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database of either version."""
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture
def connection(url: str) -> Iterator[Connection[Any]]:
    """A connection of the test's own."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def start_jobs(url: str, count: int) -> None:
    with closing(PostgresDatabase(url)) as database:
        ids = [new_id() for _ in range(count)]
        database.run(database.store.jobs.insert([NewJob(id, id, "mail", "{}") for id in ids]))


def claim_jobs(url: str, count: int) -> list[ClaimedJob]:
    with closing(PostgresDatabase(url)) as database:
        token = new_id()
        probe = Probe("mail", 5, token, count, 0, "00000000-0000-0000-0000-000000000000")
        lease = LeaseClass(token, 60_000, 25, 1_000, 5_000)
        claimed = database.run(database.store.jobs.claim(Claim("w", count, (probe,), (lease,))))
        assert len(claimed) == count
        return claimed


def completion(url: str, jobs: list[ClaimedJob]) -> Any:
    with closing(PostgresDatabase(url)) as database:
        finishes = [Finish(str(j.id), str(j.token), "complete", "w", str(j.id)) for j in jobs]
        return next(database.store.jobs.finish(finishes))


def test_claimed_rows_stay_on_their_pages(url: str, connection: Connection[Any]) -> None:
    pages = "select job_id, split_part(ctid::text, ',', 1) from holdfast.queue"
    connection.execute("alter table holdfast.queue set (autovacuum_enabled = off)")
    start_jobs(url, JOBS)
    before = dict(connection.execute(pages).fetchall())
    assert len(set(before.values())) > 2
    claim_jobs(url, JOBS)
    assert dict(connection.execute(pages).fetchall()) == before


@FLUSHES
def test_a_flush_locks_no_row_that_only_its_claim_has_touched(
    url: str, connection: Connection[Any], size: int
) -> None:
    start_jobs(url, size)
    jobs = claim_jobs(url, size)
    statement = completion(url, jobs)
    prepare(connection, statement.name)
    command = sql.SQL("explain (analyze, costs off, timing off) ") + execution(statement)
    plan = [row[0] for row in connection.execute(command).fetchall()]
    (locking,) = [line for line in plan if "LockRows" in line]
    assert "never executed" in locking
    assert connection.execute("select count(*) from holdfast.outcome").fetchall() == [(size,)]


@FLUSHES
def test_a_row_that_is_taken_while_a_flush_deletes_it_has_to_prove_itself_again(
    url: str, connection: Connection[Any], size: int
) -> None:
    start_jobs(url, size)
    statement = completion(url, claim_jobs(url, size))
    compiled = postgres_statements("dollar", DEFAULT_SCHEMA)[statement.name]
    assert compiled.text.count(UNTOUCHED) == (1 if size == 1 else 2)
    text = compiled.text.replace(UNTOUCHED, UNTOUCHED_THEN_WAIT)
    answers: list[Any] = []

    def flush() -> None:
        with psycopg.connect(url, autocommit=True) as flushing:
            cursor = psycopg.RawCursor(flushing)
            cursor.execute(text.encode(), as_texts(compiled, statement.params))
            answers.append(cursor.fetchall())

    def is_waiting(*kinds: str) -> bool:
        with psycopg.connect(url) as watching:
            return bool(watching.execute(WAITS, [list(kinds)]).fetchall()[0][0])

    connection.execute("select pg_advisory_lock(7)")
    thread = threading.Thread(target=flush)
    thread.start()
    wait_until(lambda: is_waiting("advisory"))
    with connection.transaction():
        connection.execute("update holdfast.queue set token = gen_random_uuid()")
        connection.execute("select pg_advisory_unlock(7)")
        wait_until(lambda: is_waiting("transactionid", "tuple"))
    thread.join(PATIENCE_S)
    assert answers == [[]]
    assert connection.execute("select count(*) from holdfast.queue").fetchall() == [(size,)]
    assert connection.execute("select count(*) from holdfast.outcome").fetchall() == [(0,)]
