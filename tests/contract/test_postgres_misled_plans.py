"""A worker's claim stays cheap when the statistics are of another moment and say that nothing is due."""

from typing import Any

import psycopg
import pytest
from psycopg import Connection

from holdfast.core.model import Claim, LeaseClass, Probe
from holdfast.storage.aggregates.job import Jobs
from holdfast.storage.postgres.connect import connection_string
from tests.contract.buffers import PlanMode, measure

TOKEN = "019c0000-0000-7000-8000-000000000000"
FIRST_ID = "00000000-0000-0000-0000-000000000000"
BEFORE, AFTER, LIMIT = 5_000, 20_000, 20

WRITE = """
with written as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  select id, id, 0, 'mail', '{}', 5, 0, now()
    from (select gen_random_uuid() as id from generate_series(1, %(rows)s)) made
  returning id)
insert into holdfast.queue (job_id, type, priority, available_at, token)
select id, 'mail', 5, now() + %(delay)s::interval, %(token)s::uuid from written
"""
RUNNING = {"rows": BEFORE, "delay": "0", "token": TOKEN}
DELAYED = {"rows": BEFORE, "delay": "1 year", "token": None}
DUE = {"rows": AFTER, "delay": "0", "token": None}


def worker_connection(url: str) -> Connection[Any]:
    text = connection_string(url, "claim", 10_000, only_by_index=True)
    return psycopg.connect(text, autocommit=True)


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("analysed", [RUNNING, DELAYED], ids=["running", "delayed"])
def test_a_claim_costs_what_it_takes_though_none_was_due_when_the_table_was_analysed(
    postgres_url: str, analysed: dict[str, Any], mode: PlanMode
) -> None:
    with worker_connection(postgres_url) as connection:
        connection.execute(WRITE, analysed)
        connection.execute("vacuum analyze holdfast.queue")
        # The claim looks from behind what was running already, as a worker's mark does.
        mark = connection.execute("select holdfast.us(clock_timestamp())").fetchone()
        connection.execute(WRITE, DUE)
        assert mark is not None
        probe = Probe("mail", 5, TOKEN, LIMIT, mark[0], FIRST_ID)
        lease = LeaseClass(TOKEN, 60_000, 25, 1_000, 5_000)
        claim = next(Jobs().claim(Claim("worker", LIMIT, (probe,), (lease,))))
        cost = measure(connection, claim, mode)
    assert cost.rows == LIMIT
    assert cost.blocks <= 20 + 10 * LIMIT, cost.plan
