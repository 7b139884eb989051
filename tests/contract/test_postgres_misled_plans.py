"""A worker's statements stay cheap when the statistics are of a time when nothing was due or the tables were small."""

import re
from typing import Any, cast

import psycopg
import pytest
from psycopg import Connection

from holdfast.core.records import Claim, Finish, Held, LeaseClass, Probe
from holdfast.core.steps import ClosedStep, NewStep
from holdfast.storage.operation import Statement
from holdfast.storage.postgres.connection import connection_string
from holdfast.storage.store.jobs import JobStore
from holdfast.storage.store.leases import LeaseStore
from holdfast.storage.store.steps import SignalStore, StepStore
from tests.contract.buffers import PlanMode, measure, measure_prepared, prepare

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
        claim = next(JobStore().claim(Claim("worker", LIMIT, (probe,), (lease,))))
        cost = measure(connection, claim, mode)
    assert cost.rows == LIMIT
    assert cost.blocks <= 20 + 10 * LIMIT, cost.plan


LEASE = """
insert into holdfast.lease
  (token, worker, claimed_at, expires_at, lease_ms, max_attempts, backoff_base_ms, backoff_cap_ms, job_ids)
select %(token)s::uuid, 'worker', now(), now(), 60000, 25, 1000, 5000, array_agg(job_id)
  from holdfast.queue where token is not null
"""
FEW, MANY = 5, 50_000


def worker_statements(ids: list[str], limit: int = FEW) -> list[Statement]:
    """What a worker asks again and again of the jobs that it holds."""
    lease = LeaseClass(FIRST_ID, 60_000, 25, 1_000, 5_000)
    claims = [
        Claim("worker", limit, (Probe("mail", line, FIRST_ID, limit, 0, FIRST_ID),), (lease,))
        for line in (5, None)
    ]
    ends = [Finish(id, TOKEN, "complete", "worker", id) for id in ids]
    retries = [Finish(id, TOKEN, "retry", "worker", id, error="Boom: no") for id in ids]
    jobs, leases = JobStore(), LeaseStore()
    return [
        *(next(jobs.claim(each)) for each in claims),
        next(jobs.finish(ends)),
        next(jobs.finish(retries)),
        next(jobs.lease_status([Held(id, TOKEN) for id in ids])),
        next(leases.renew([TOKEN])),
        next(leases.held("worker")),
        next(leases.free([TOKEN])),
        next(leases.release([TOKEN])),
        next(leases.reap(100, 3)),
    ]


def test_a_plan_made_while_the_tables_were_small_stays_cheap_when_they_are_large(
    postgres_url: str,
) -> None:
    with worker_connection(postgres_url) as connection:
        connection.execute(WRITE, {"rows": FEW, "delay": "0", "token": TOKEN})
        connection.execute(LEASE, {"token": TOKEN})
        connection.execute("vacuum analyze")
        ids = [row[0] for row in connection.execute("select job_id::text from holdfast.queue")]
        asked = worker_statements(ids)
        for name in {each.name for each in asked}:
            prepare(connection, name)
        for each in asked:
            measure_prepared(connection, each)
        connection.execute(WRITE, {"rows": MANY, "delay": "1 year", "token": None})
        for each in asked:
            cost = measure_prepared(connection, each)
            assert cost.blocks <= 20 + 40 * FEW, f"{each.name}: {cost.plan}"


BURST = 400


@pytest.mark.parametrize("server", ["postgres_url", "other_postgres_url"])
def test_a_plan_made_on_an_empty_queue_compares_no_row_of_a_burst_with_all_others(
    request: pytest.FixtureRequest, server: str
) -> None:
    with worker_connection(request.getfixturevalue(server)) as connection:
        connection.execute("vacuum analyze")
        for name in {each.name for each in worker_statements([FIRST_ID, TOKEN])}:
            prepare(connection, name)
        for each in worker_statements([FIRST_ID, TOKEN]):
            measure_prepared(connection, each)
        connection.execute(WRITE, {"rows": BURST, "delay": "0", "token": TOKEN})
        connection.execute(LEASE, {"token": TOKEN})
        held = connection.execute("select job_id::text from holdfast.queue").fetchall()
        connection.execute(WRITE, {"rows": BURST, "delay": "0", "token": None})
        for each in worker_statements([row[0] for row in held], limit=BURST):
            cost = measure_prepared(connection, each)
            assert cost.blocks <= 20 + 60 * BURST, f"{each.name}: {cost.plan}"
            compared = map(int, re.findall(r"Rows Removed by Join Filter: (\d+)", cost.plan))
            assert sum(compared) <= BURST, f"{each.name}: {cost.plan}"


WORN = 20_000
# A look-up by id along the index of the lines.
BY_LINE = r"queue_(claim|line)[^\n]*\n\s*Index Cond: \(+job_id\b"


@pytest.mark.parametrize("server", ["postgres_url", "other_postgres_url"])
def test_a_plan_made_on_a_worn_and_emptied_queue_looks_up_jobs_by_their_own_index(
    request: pytest.FixtureRequest, server: str
) -> None:
    """Vacuum says that the queue is empty, its indexes are large: which one is read for an id is a matter of height."""
    with worker_connection(request.getfixturevalue(server)) as connection:
        connection.execute(WRITE, {"rows": WORN, "delay": "0", "token": None})
        connection.execute("delete from holdfast.queue")
        connection.execute("vacuum analyze holdfast.queue")
        for name in {each.name for each in worker_statements([FIRST_ID, TOKEN])}:
            prepare(connection, name)
        for each in worker_statements([FIRST_ID, TOKEN]):
            plan = measure_prepared(connection, each).plan
            assert not re.search(BY_LINE, plan), plan


FUNCTIONS = """
with written as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  select id, id, 0, 'order', '{}', 5, 0, now()
    from (select gen_random_uuid() as id from generate_series(1, %(rows)s)) made
  returning id),
queued as (
  insert into holdfast.queue (job_id, type, priority, available_at, steps, woken)
  select id, 'order', 5, 'infinity', true, false from written),
charged as (
  insert into holdfast.step (job_id, name, key, nth, position, kind, state, output, undo, fence, finished_at)
  select id, 'charge', '', 1, 1, 'step', 'done', '7', false, 1, now() from written)
insert into holdfast.step (job_id, name, key, nth, position, kind, state, undo, fence, signal, signal_key)
select id, 'wait', '', 1, 2, 'wait', 'open', false, 1, 'approved', id::text from written
returning job_id::text
"""
SIGNALS = """
insert into holdfast.signal (id, name, key, data, broadcast, at, until)
select gen_random_uuid(), 'approved', key, 'null', false, now(), now() + interval '1 day' from unnest(%s::text[]) key
"""
CLAIMED = "update holdfast.queue set token = %s where job_id = any (%s::uuid[])"


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
def test_functions_cost_what_they_do_though_many_others_are_parked(
    postgres_url: str, mode: PlanMode
) -> None:
    with worker_connection(postgres_url) as connection:
        connection.execute("select set_config('plan_cache_mode', %s, false)", [mode])
        few = [row[0] for row in connection.execute(FUNCTIONS, {"rows": FEW})]
        connection.execute("vacuum analyze holdfast.queue, holdfast.step, holdfast.signal")
        connection.execute(SIGNALS, [few])
        connection.execute(CLAIMED, [TOKEN, few])
        fields = {"key": "", "nth": 1, "position": 3, "kind": "step", "state": "done"}
        steps = [NewStep(each, TOKEN, "ship", marks=True, **cast(Any, fields)) for each in few]
        found = connection.execute("select key, id::text from holdfast.signal")
        ends = [ClosedStep(job, TOKEN, "wait", "", 1, "done", signal_id=id) for job, id in found]
        parks = [Finish(each, TOKEN, "park", "worker", each) for each in few]
        statements = [
            next(SignalStore().route(500)),
            next(StepStore().record(steps)),
            next(StepStore().record(steps[:1])),
            next(StepStore().of_jobs(few)),
            next(StepStore().close(ends)),
            next(JobStore().finish(parks)),
        ]
        for name in {each.name for each in statements}:
            prepare(connection, name)
        for _ in range(MANY // BEFORE):
            connection.execute(FUNCTIONS, {"rows": BEFORE}, prepare=False)
        # Each of the tables has more than a thousand blocks then, and splits of full pages are a few for each row.
        for each in statements:
            cost = measure_prepared(connection, each)
            assert cost.blocks <= 20 + 40 * FEW, f"{each.name}: {cost.plan}"
