"""Types without limits pay nothing for those that have them: the same statements, to the letter, and the same log."""

from collections.abc import Generator, Iterator, Sequence
from typing import Any

import psycopg
import pytest

from holdfast.core.partitions import partition_id
from holdfast.core.records import Claim, Finish, LeaseClass, NewJob, Probe
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op, Statement
from holdfast.storage.postgres.connection import connection_string
from holdfast.storage.postgres.store import postgres_statements
from holdfast.storage.sql_loader import DEFAULT_SCHEMA
from holdfast.storage.store import Store
from tests.contract.buffers import execution, prepare

JOBS = 200
LOG_BEFORE_LIMITS = 1_744 - 56
"""Bytes of a plain job from its start to its end, with the schema and the statements of the commit before limits, less
the lock that a flush took then."""
LIFE = ["job_insert_new", "job_claim_queues", "job_complete_one"]
MORE = [
    *("job_insert", "job_insert_one", "job_claim", "job_next_due"),
    *("job_complete", "lease_renew", "lease_held"),
]


def sent(op: Op[Any], answers: list[list[Any]]) -> Iterator[Statement]:
    """The statements of an operation that gets these answers."""
    statement = next(op)
    try:
        for answer in answers:
            yield statement
            statement = op.send(answer)
    except StopIteration:
        pass


def life(store: Store, over: Sequence[str] = ()) -> Generator[Statement, None, str]:
    """A plain job from its start to its end, with which leases are removed that are over; returns its own."""
    id, token = new_id(), new_id()
    lease = LeaseClass(token, 60_000, 25, 1_000, 5_000)
    probe = Probe("plain", 5, token, 1, 0, "00000000-0000-0000-0000-000000000000")
    yield from sent(store.jobs.insert_new(NewJob(id, id, "plain", "{}")), [[]])
    yield from sent(store.jobs.claim(Claim("w", 1, (probe,), (lease,))), [[]])
    finish = Finish(id, token, "complete", "w", id, 0, "null")
    yield from sent(store.jobs.finish([finish], over), [[]])
    return token


@pytest.fixture
def connection(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A worker's connection."""
    text = connection_string(postgres_url, "claim", 60_000, only_by_index=True)
    with psycopg.connect(text, autocommit=True) as made:
        for name in (*LIFE, "job_insert_limited"):
            prepare(made, name)
        yield made


def log_of(connection: psycopg.Connection[Any], store: Store) -> int:
    """How many bytes of log a plain job costs: the least of many, because others write to the same log."""
    costs: list[int] = []
    over: list[str] = []
    for number in range(JOBS + 1):
        before = connection.execute("select pg_current_wal_insert_lsn()").fetchone()
        over = [run_all(connection, life(store, over))]
        row = connection.execute("select pg_current_wal_insert_lsn() - %s", before).fetchone()
        assert row is not None
        # The first one had no lease to remove.
        costs += [int(row[0])] if number else []
    return min(costs)


def run_all(
    connection: psycopg.Connection[Any], statements: Generator[Statement, None, str]
) -> str:
    """Run statements that are prepared; return what their generator does."""
    while True:
        try:
            connection.execute(execution(next(statements)))
        except StopIteration as end:
            return str(end.value)


def test_a_plain_job_takes_the_statements_it_always_took() -> None:
    names = [each.name for each in life(Store())]
    assert names == LIFE
    texts = postgres_statements("dollar", DEFAULT_SCHEMA)
    for name in LIFE + MORE:
        for word in ("gate", "wakeup", "limit_setting", "rests_until"):
            assert word not in texts[name].text, f"{name} speaks of {word}"


def test_a_plain_job_writes_the_same_log_beside_limited_ones(
    connection: psycopg.Connection[Any],
) -> None:
    store = Store()
    alone = log_of(connection, store)
    jobs = [
        NewJob(id, id, "limited", "{}", gate=partition_id("limited", str(number % 50)))
        for number, id in enumerate(new_id() for _ in range(500))
    ]
    for each in sent(store.jobs.insert(jobs), [[]]):
        connection.execute(execution(each))
    assert log_of(connection, store) <= alone + 16


def test_a_plain_job_writes_the_log_that_it_wrote_before_there_were_limits(
    connection: psycopg.Connection[Any],
) -> None:
    # Versions of PostgreSQL differ by some bytes.
    assert log_of(connection, Store()) == pytest.approx(LOG_BEFORE_LIMITS, abs=32)
