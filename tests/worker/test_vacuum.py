"""Dead rows: workers have them removed as soon as there are many, where they may and where it helps."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection, sql

from holdfast.core.records import Swept
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.worker.reaper import (
    FEW_DEAD,
    JOBS_BETWEEN,
    VACUUM_EVERY_S,
    VACUUM_IN_VAIN_S,
    VACUUM_PAUSE_MAX_S,
    VacuumPace,
)
from tests.support.postgres import PostgresServer
from tests.support.until import until
from tests.worker.workshop import Workshop

DIE = """
insert into holdfast.queue (job_id, type, priority, available_at)
select gen_random_uuid(), 'dead', 5, 'infinity' from generate_series(1, %s);
"""

SWEPT = "select vacuum_count, n_dead_tup from pg_stat_user_tables where relid = 'holdfast.queue'::regclass"


@pytest.fixture(params=["postgres_server", "other_postgres_server"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database in which only workers vacuum the queue: a fresh copy, for an emptied one still has dead rows."""
    server: PostgresServer = request.getfixturevalue(request.param)
    server.drop_idle()
    with server.database() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("alter table holdfast.queue set (autovacuum_enabled = off)")
        yield url


def make_dead(url: str, count: int) -> None:
    """Leave dead rows behind; the server counts them at the end of the session."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(DIE, [count])
        connection.execute("delete from holdfast.queue where type = 'dead'")


async def sweep(url: str) -> Swept | None:
    """Sweep as a worker does."""
    database = PostgresDatabase(url)
    link = database.link("reaper")
    try:
        return await link.run(database.store.server_stats.sweep(FEW_DEAD))
    finally:
        await link.close()


def ask(connection: Connection[Any], question: str) -> tuple[Any, ...]:
    """Read one row of the server's figures as they are now."""
    row = connection.execute(question.encode()).fetchone()
    assert row is not None
    return tuple(row)


async def test_many_dead_rows_are_removed_at_once_and_a_few_are_left(url: str) -> None:
    make_dead(url, FEW_DEAD)
    assert await sweep(url) is None
    make_dead(url, 1)
    assert await sweep(url) == Swept(dead=FEW_DEAD + 1, left=0)


async def test_a_vacuum_reports_what_an_old_snapshot_made_it_leave(url: str) -> None:
    with psycopg.connect(url) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        ask(reader, "select 1")
        make_dead(url, 2 * FEW_DEAD)
        assert await sweep(url) == Swept(dead=2 * FEW_DEAD, left=2 * FEW_DEAD)


async def test_a_role_that_may_not_vacuum_does_not_try(url: str) -> None:
    make_dead(url, 2 * FEW_DEAD)
    with psycopg.connect(url, autocommit=True) as owner:
        role = "sweeps_nothing"
        named = sql.Identifier(role)
        owner.execute(sql.SQL("create role {} login password 'x'").format(named))
        try:
            owner.execute(sql.SQL("grant usage on schema holdfast to {}").format(named))
            assert await sweep(psycopg.conninfo.make_conninfo(url, user=role, password="x")) is None
        finally:
            owner.execute(sql.SQL("drop owned by {}").format(named))
            owner.execute(sql.SQL("drop role {}").format(named))
        assert ask(owner, SWEPT) == (0, 2 * FEW_DEAD)


async def test_a_worker_vacuums_after_many_jobs(postgres_workshop: Workshop, url: str) -> None:
    make_dead(url, 2 * FEW_DEAD)
    database = PostgresDatabase(url)
    workshop = Workshop(database, postgres_workshop.ledger)
    workshop.handle_quick()
    await workshop.start("quick", count=JOBS_BETWEEN)
    running = workshop.begin()
    with psycopg.connect(url, autocommit=True) as connection:
        await until(lambda: ask(connection, SWEPT)[0] > 0)
    await running.stop()
    await workshop.close()
    await database.close_async()


def test_a_large_table_is_vacuumed_rarely_and_one_slow_run_changes_nothing() -> None:
    pace, done = VacuumPace(), Swept(dead=10_000, left=0)
    assert [pace.pause_after(each, done) for each in (0.01, 2.0, 0.02)] == [VACUUM_EVERY_S] * 3
    assert [pace.pause_after(2.0, done) for _ in range(5)][-1] == 20.0
    assert [pace.pause_after(30.0, done) for _ in range(5)][-1] == VACUUM_PAUSE_MAX_S


def test_after_a_run_in_vain_the_next_comes_soon_and_later_ones_more_rarely() -> None:
    pace, kept = VacuumPace(), Swept(dead=10_000, left=10_000)
    pauses = [pace.pause_after(0.01, kept) for _ in range(20)]
    assert pauses[0] == VACUUM_EVERY_S
    assert pauses == sorted(pauses)
    assert pauses[-1] == VACUUM_IN_VAIN_S
    assert pace.pause_after(0.01, Swept(dead=200_000, left=0)) == VACUUM_EVERY_S


async def test_no_table_of_history_is_sampled_for_long(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        largest = ask(
            connection,
            "select max(case when a.attstattarget < 0 then 100 else coalesce(a.attstattarget, 100) end)"
            " from pg_attribute a join pg_class c on c.oid = a.attrelid"
            " where c.relnamespace = 'holdfast'::regnamespace and c.relname in ('job', 'outcome', 'attempt')"
            " and a.attnum > 0 and not a.attisdropped",
        )
    assert largest == (25,)


async def test_no_vacuum_waits_for_the_lock_that_makes_a_table_shorter(url: str) -> None:
    swept = ("queue", "lease", "tally", "gate", "wakeup", "charge")
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "select c.relname from pg_class c where c.relnamespace = 'holdfast'::regnamespace"
            " and 'vacuum_truncate=off' = any (c.reloptions)"
        )
        assert {name for (name,) in rows} == set(swept)
