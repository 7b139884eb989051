"""What a poll of partitions costs: a saturated key slows nobody, and plans made at the worst moment stay cheap."""

import os
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg import Connection

from holdfast.core.partitions import SignalMark
from holdfast.core.records import Finish
from holdfast.storage.operation import Statement
from holdfast.storage.postgres.connection import connection_string
from holdfast.storage.store.jobs import JobStore
from tests.contract.buffers import execution, measure_prepared, prepare
from tests.contract.partition_polls import ALLOWED, poll_partitions

SATURATED = int(os.environ.get("HOLDFAST_SATURATED_JOBS", "100000"))
KEYS, EACH, LIMIT = 1_000, 10, 50

FILL = """
with made as (
  select gen_random_uuid() as id, %(prefix)s || (i %% %(keys)s) as gate,
         now() - interval '1 h' + i * interval '1 us' as at
    from generate_series(1, %(rows)s) i),
written as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  select id, id, 0, 'mail', '{}', 5, 0, at from made),
lined as (
  insert into holdfast.queue (job_id, type, priority, available_at, gate, gate_at)
  select id, 'mail', 5, null, gate, at from made)
insert into holdfast.wakeup (type, priority, at, gate, since)
select 'mail', 5, min(at), gate, min(at) from made group by gate
"""


def look(limit: int = LIMIT, **fields: Any) -> Statement:
    """One look for jobs of other keys, behind what is known."""
    return next(JobStore().claim_limited(poll_partitions(limit, **fields)))


def run(connection: Connection[Any], statement: Statement) -> list[Any]:
    """Run a statement for good."""
    return connection.execute(execution(statement)).fetchall()


@pytest.fixture(params=["postgres_url", "other_postgres_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def connection(url: str) -> Iterator[Connection[Any]]:
    """A worker's connection, whose plans were made while the tables were empty and analysed."""
    text = connection_string(url, "claim", 600_000, only_by_index=True)
    with psycopg.connect(text, autocommit=True) as made:
        made.execute("vacuum analyze")
        prepare(made, "limit_claim")
        measure_prepared(made, look())
        yield made


def others(connection: Connection[Any]) -> int:
    """What a poll for jobs of other keys touches, once their partitions are made."""
    cost = measure_prepared(connection, look())
    assert cost.rows == LIMIT
    compared = map(int, re.findall(r"Rows Removed by Join Filter: (\d+)", cost.plan))
    assert sum(compared) <= 40 * LIMIT, cost.plan
    return cost.blocks


def test_a_saturated_key_slows_no_other_and_costs_little_itself(
    connection: Connection[Any],
) -> None:
    connection.execute(FILL, {"prefix": "mail#t", "keys": KEYS, "rows": KEYS * EACH})
    without = others(connection)
    connection.execute("delete from holdfast.wakeup")
    connection.execute("delete from holdfast.queue")
    connection.execute("vacuum holdfast.queue, holdfast.wakeup")
    connection.execute(FILL, {"prefix": "mail#big", "keys": 1, "rows": SATURATED})
    while len(run(connection, look(ALLOWED, window=2 * LIMIT, partitions=2 * LIMIT))) > 1:
        pass
    connection.execute(FILL, {"prefix": "mail#t", "keys": KEYS, "rows": KEYS * EACH})
    assert others(connection) <= 1.2 * without + 20
    # A plan that is made now, when nobody has counted the rows yet, is as good.
    connection.execute("deallocate limit_claim")
    prepare(connection, "limit_claim")
    assert others(connection) <= 1.2 * without + 20
    connection.execute("delete from holdfast.wakeup")
    connection.execute("vacuum holdfast.wakeup")
    connection.execute(
        "insert into holdfast.wakeup (type, priority, at, gate) values ('mail', 5, now() - interval '2 h', 'mail#big0')"
    )
    for allow_crashed in (True, False):
        # A worker without a free slot looks on, and takes no job that crashed.
        full = measure_prepared(connection, look(1, partitions=8, allow_crashed=allow_crashed))
        assert full.rows == 1
        assert full.blocks <= 40, full.plan
    assert LIMIT * 8 < without < LIMIT * 80


def test_turns_under_an_old_snapshot_cost_the_same_at_the_end(
    url: str, connection: Connection[Any]
) -> None:
    turns = int(os.environ.get("HOLDFAST_TURNS", "600"))
    connection.execute(FILL, {"prefix": "mail#one", "keys": 1, "rows": turns + 10})
    prepare(connection, "job_complete_limited")
    with psycopg.connect(url) as old:
        old.execute("set transaction isolation level repeatable read")
        old.execute("select count(*) from holdfast.gate")
        mark = SignalMark(5)
        costs = []
        for turn in range(turns):
            marked = look(1, allowed=1, mark=mark, window=20, partitions=8)
            if turn in (20, turns - 1):
                costs.append(measure_prepared(connection, marked).blocks)
            rows = run(connection, marked)
            mark = SignalMark(*_marks(rows[0][5])[0])
            ends = [
                Finish(
                    str(row[6]), str(row[7]), "complete", "w", str(row[6]), 0, "null", gate=row[25]
                )
                for row in rows
                if row[6] is not None
            ]
            assert ends, f"no job in turn {turn}"
            run(connection, next(JobStore().finish(ends)))
        early, late = costs
    assert late <= 1.3 * early + 10


def _marks(text: str) -> list[list[int]]:
    return msgspec.json.decode(text, type=list[list[int]])
