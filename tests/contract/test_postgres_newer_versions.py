"""An old worker beside many jobs of a newer version reads them once, and then only what lies behind them."""

from typing import Any

import psycopg

from holdfast.core.records import Claim, LeaseClass, Probe
from holdfast.storage.operation import Statement
from holdfast.storage.postgres.connection import connection_string
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.store.jobs import JobStore, UnreadableStore
from tests.contract.buffers import measure

TOKEN = "019c0000-0000-7000-8000-000000000000"
FIRST_ID = "00000000-0000-0000-0000-000000000000"
NEWER, READABLE = 5_000, 10

WRITE = """
with written as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at, version)
  select id, id, 0, 'mail', '{}', 5, 0, now(), %(version)s
    from (select gen_random_uuid() as id from generate_series(1, %(rows)s)) made
  returning id)
insert into holdfast.queue (job_id, type, priority, available_at, version)
select id, 'mail', 5, now() - %(age)s::interval, %(version)s from written
"""


def claim(after: tuple[int, str], reads: int) -> Statement:
    probe = Probe("mail", 5, TOKEN, 20, *after, reads=reads)
    lease = LeaseClass(TOKEN, 60_000, 25, 1_000, 5_000)
    return next(JobStore().claim(Claim("worker", 20, (probe,), (lease,))))


def test_behind_newer_jobs_a_claim_costs_what_it_takes(postgres_url: str) -> None:
    text = connection_string(postgres_url, "claim", 10_000, only_by_index=True)
    with psycopg.connect(text, autocommit=True) as connection:
        connection.execute(WRITE, {"rows": NEWER, "version": 3, "age": "1 minute"})
        connection.execute("vacuum analyze holdfast.queue")
        connection.execute(WRITE, {"rows": READABLE, "version": None, "age": "0"})

        def cost(statement: Statement) -> tuple[int, bool]:
            found = measure(connection, statement, "force_generic_plan")
            return found.rows, found.blocks <= 20 + 10 * READABLE

        assert cost(claim((0, FIRST_ID), reads=2)) == (READABLE, False)
        assert cost(claim(_place(postgres_url), reads=2)) == (READABLE, True)
        assert cost(next(UnreadableStore().newer(["mail"], {"mail": 2}))) == (1, True)
        assert cost(next(JobStore().next_due(["mail"], 10**12, reads={"mail": 2}))) == (1, True)
        assert cost(next(UnreadableStore().count(100))) == (1, True)


def _place(url: str) -> tuple[int, str]:
    """Where the last of the newer jobs is, as a worker that reads version 2 is told."""
    database = PostgresDatabase(url)
    rows: list[Any] = database.run(database.store.unreadable.newer(["mail"], {"mail": 2}))
    database.close()
    ((_, _, at, id),) = rows
    return at, id
