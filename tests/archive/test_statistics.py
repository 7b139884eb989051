"""The archive's statements stay cheap though the tables were empty when the server last looked at them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from holdfast import Holdfast
from holdfast.core.instants import to_instant
from holdfast_archive import Archive

JOBS = 150

ENDED = """
with made as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  select id, id, 0, 'done', '{}', 5, 0, now()
    from (select gen_random_uuid() as id from generate_series(1, %s)) made
  returning id, type)
insert into holdfast.outcome (job_id, type, state, attempts, crashes, fence, token, worker, started_at, finished_at)
select id, type, 'completed', 1, 0, 1, id, 'elsewhere', now(), now() from made
"""
READ = """
select sum(pg_stat_get_tuples_returned(c.oid))::bigint from pg_class c
 where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'i')
"""


def read_rows(connection: psycopg.Connection[Any]) -> int:
    """How many rows and entries of indexes were looked at, by all sessions."""
    connection.execute("select pg_stat_force_next_flush()")
    found = connection.execute(READ).fetchone()
    assert found is not None
    return int(found[0])


def test_an_archive_looks_at_each_chain_a_few_times_though_the_statistics_know_none(
    postgres_url: str, tmp_path: Path
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for table in ("job", "outcome"):
            connection.execute(
                f"alter table holdfast.{table} set (autovacuum_enabled = off)".encode()
            )
        connection.execute(ENDED, [JOBS])
        connection.execute("delete from holdfast.outcome")
        connection.execute("delete from holdfast.job")
        # What is left are dead rows: the tables have pages, and nothing in them.
        connection.execute("analyze holdfast.job, holdfast.outcome")
        connection.execute(ENDED, [JOBS])
        before = read_rows(connection)
        app = Holdfast(postgres_url)
        later = to_instant(datetime.now(UTC) + timedelta(days=400))
        archive = Archive(lambda: app.database, str(tmp_path), now=lambda: later)
        archive.jobs(period="month", keep="0s")
        assert archive.run().items == JOBS
        assert archive.run().dropped == JOBS
        assert sum(archive.restore(each.id).inserted for each in archive.list()) == 2 * JOBS
        app.close()
        assert read_rows(connection) - before <= 200 * JOBS
