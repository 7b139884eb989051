"""Our store on the bench's server: filling it, emptying it, and putting rows beside the measured ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from holdfast.client.starting import Start
from holdfast.storage.identifiers import new_id
from tests.bench.conditions import Condition
from tests.bench.handlers import producer
from tests.bench.limit_loop import LimitLoop
from tests.bench.payload import INPUT, INPUT_TEXT
from tests.bench.server import BenchServer

AT_ONCE = 1000
SETTLED_AFTER = 10_000

EMPTY = """
truncate holdfast.job, holdfast.queue, holdfast.lease, holdfast.outcome, holdfast.tally, holdfast.blocker,
         holdfast.worker
"""

VACUUM = "vacuum analyze holdfast.job, holdfast.queue, holdfast.outcome"

SEED_FINISHED = """
with made as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  select id, id, 0, 'done', %(input)s, 5, 0, now()
    from (select uuidv7() as id from generate_series(1, %(count)s)) made
  returning id, type)
insert into holdfast.outcome (job_id, type, state, attempts, crashes, fence, token, worker, started_at, finished_at)
select id, type, 'completed', 1, 0, 1, id, 'somebody', now(), now() from made
"""

SEED_WAITING = """
with made as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  select id, id, 0, %(type)s, %(input)s, 5, 0, now()
    from (select uuidv7() as id from generate_series(1, %(count)s)) made
  returning id, type)
insert into holdfast.queue (job_id, type, priority, available_at)
select id, type, 5, now() + %(after)s::interval from made
"""

SEED_IN_FLIGHT = """
with made as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  select id, id, 0, %(type)s, %(input)s, 5, 0, now()
    from (select uuidv7() as id from generate_series(1, %(count)s)) made
  returning id, type),
queued as (
  insert into holdfast.queue (job_id, type, priority, available_at, attempt, fence, token)
  select id, type, 5, now(), 1, 1, %(token)s from made)
insert into holdfast.lease (token, worker, claimed_at, expires_at, lease_ms, max_attempts, backoff_base_ms,
                            backoff_cap_ms, job_ids)
select %(token)s, 'somebody', now(), now() + interval '1 day', 86400000, 25, 10000, 300000, array_agg(id) from made
"""


def seed(url: str, condition: Condition, type: str = "noop") -> None:
    """Put the condition's rows into our tables."""
    rows: dict[str, Any] = {"input": INPUT_TEXT}
    with psycopg.connect(url, autocommit=True) as connection:
        if condition.finished:
            connection.execute(SEED_FINISHED, rows | {"count": condition.finished})
        if condition.delayed:
            waiting = {"count": condition.delayed, "type": type, "after": "50 years"}
            connection.execute(SEED_WAITING, rows | waiting)
        if condition.unhandled:
            waiting = {"count": condition.unhandled, "type": "nobody", "after": "0"}
            connection.execute(SEED_WAITING, rows | waiting)
        if condition.in_flight:
            held = {"count": condition.in_flight, "type": type, "token": new_id()}
            connection.execute(SEED_IN_FLIGHT, rows | held)


@contextmanager
def site(server: BenchServer, condition: Condition) -> Iterator[str]:
    """Yield a database in which our tables and the limit loop's stand ready under the same condition."""
    with server.database() as url:
        with LimitLoop(url) as loop:
            loop.create()
            loop.seed(
                condition.finished, condition.delayed, condition.unhandled, condition.in_flight
            )
        seed(url, condition)
        yield url


def refresh(url: str, condition: Condition) -> None:
    """Bring our tables back to what the condition says, between two runs."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(VACUUM if condition.is_seeded else EMPTY)


@dataclass(frozen=True, slots=True)
class Filled:
    """Jobs of a backlog: the first, the one that ends about tenthousandth, and the last."""

    first: str
    early: str
    last: str


def fill(url: str, types: str | Sequence[str], count: int, input: Any = INPUT) -> Filled:
    """Start chains of one type, or of several in turn."""
    names = [types] if isinstance(types, str) else list(types)
    head = early = last = ""
    with closing(producer(url)) as app:
        for first in range(0, count, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, count))
            starts = [Start(names[number % len(names)], input) for number in numbers]
            with app.transaction() as tx:
                chains = app.start_all(tx, starts)
            head, last = head or str(chains[0].id), str(chains[-1].id)
            if not early or first < SETTLED_AFTER:
                early = last
    return Filled(head, early, last)
