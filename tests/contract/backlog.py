"""A backlog as a busy installation has it: 100,000 analysed live jobs, and some that have ended, one in ten failed."""

from typing import Any

from psycopg import Connection

from holdfast.core.instants import Instant

ROWS = 100_000
RUNNING = 2_000
PER_LEASE = 20
FINISHED = 20_000
TYPES = ("mail", "pdf", "push", "sync")
UNHANDLED = "unhandled"
WORKERS = 20
# 2025-10-09T08:53:20Z
NOW: Instant = 1_760_000_000_000_000

_NUMBERS = {
    "rows": ROWS,
    "running": RUNNING,
    "per_lease": PER_LEASE,
    "finished": FINISHED,
    "types": list(TYPES),
    "unhandled": UNHANDLED,
    "workers": WORKERS,
    "now": NOW,
}

# Of every ten rows three are due, three are due but nobody handles them, three are delayed, one is blocked.
_PLAN = """
create temporary table plan as
select n, row_number() over (partition by kind order by n) as place, kind, created_at,
       ('019a0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid as id,
       case kind when 'unhandled' then %(unhandled)s::text
            else (%(types)s::text[])[1 + n / 10 %% cardinality(%(types)s::text[])] end as type,
       case kind when 'delayed' then moment + n * interval '17 s' when 'blocked' then 'infinity'
            else created_at end as available_at
  from (
    select n, (array['due', 'due', 'due', 'unhandled', 'unhandled', 'unhandled', 'delayed', 'delayed', 'delayed',
                     'blocked'])[1 + n %% 10] as kind,
           holdfast.moment(%(now)s::bigint) as moment,
           holdfast.moment(%(now)s::bigint) - (%(rows)s - n) * interval '10 ms' as created_at
      from generate_series(1, %(rows)s) n) numbered
"""
_JOBS = """
insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
select id, id, 0, type, repeat('x', 200), 5, (kind = 'blocked')::integer, created_at from plan
"""
_RUNNING = """
create temporary table held as
select id, ('019b0000-0000-7000-8000-' || lpad(to_hex((place - 1) / %(per_lease)s), 12, '0'))::uuid as token
  from plan where kind = 'due' and place <= %(running)s
"""
_QUEUE = """
insert into holdfast.queue (job_id, type, priority, available_at, attempt, fence, token)
select p.id, p.type, 5, p.available_at, (h.id is not null)::integer, 0, h.token
  from plan p left join held h on h.id = p.id
"""
_LEASES = """
insert into holdfast.lease
  (token, worker, claimed_at, expires_at, lease_ms, max_attempts, backoff_base_ms, backoff_cap_ms, job_ids)
select token, 'worker-' || row_number() over (order by token) %% %(workers)s, holdfast.moment(%(now)s::bigint),
       holdfast.moment(%(now)s::bigint) + interval '60 s', 60000, 25, 1000, 5000, array_agg(id order by id)
  from held group by token
"""
_FINISHED = """
with done as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  select id, id, 0, 'mail', repeat('x', 200), 5, 0, holdfast.moment(%(now)s::bigint)
    from (select ('01990000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid as id
            from generate_series(1, %(finished)s) n) ids
  returning id)
insert into holdfast.outcome (job_id, type, state, attempts, crashes, fence, finished_at)
select id, 'mail', case when row_number() over () %% 10 = 0 then 'failed' else 'completed' end, 1, 0, 1,
       holdfast.moment(%(now)s::bigint)
  from done
"""
# The server's own sweeping comes when it likes.
_KEPT = [
    f"alter table holdfast.{table} set (autovacuum_enabled = false)"
    for table in ("queue", "job", "outcome", "attempt", "lease", "tally")
]
_TALLY = """
insert into holdfast.tally (at, type, started)
select holdfast.moment(%(now)s::bigint), type, count(*) from plan group by type
"""


def fill(connection: Connection[Any]) -> None:
    """Write the backlog into an empty database and have it analysed. Needs autocommit."""
    for statement in (*_KEPT, _PLAN, _JOBS, _RUNNING, _QUEUE, _LEASES, _FINISHED, _TALLY):
        connection.execute(statement, _NUMBERS)
    connection.execute("vacuum analyze")


def sweep(connection: Connection[Any]) -> None:
    """Take away what statements that were rolled back have left: full pages cost the next more. Needs autocommit."""
    connection.execute(
        "vacuum (index_cleanup on) holdfast.queue, holdfast.job, holdfast.outcome, holdfast.attempt, holdfast.lease"
    )
