"""Stricter isolation levels of a caller's own transaction end in a clear, retryable error, never in two chains."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection, IsolationLevel

from holdfast.core.errors import KeyConflict
from holdfast.core.records import NewKey
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import run
from holdfast.storage.postgres.connection import PsycopgExecutor
from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.sql_loader import DEFAULT_SCHEMA

STORE = PostgresStore()


@pytest.fixture(params=[IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
def strict(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Connection[Any]]:
    """A caller's connection with an isolation level of its own."""
    with psycopg.connect(postgres_url) as connection:
        connection.isolation_level = request.param
        yield connection


@pytest.fixture
def other(postgres_url: str) -> Iterator[Connection[Any]]:
    """Another caller's connection."""
    with psycopg.connect(postgres_url) as connection:
        yield connection


def claim_key(connection: Connection[Any]) -> set[str]:
    key = NewKey("mail", "order-1", new_id())
    return run(STORE.chains.claim_keys([key]), PsycopgExecutor(connection, DEFAULT_SCHEMA))


def test_a_key_that_another_took_meanwhile_is_a_conflict_to_be_retried(
    strict: Connection[Any], other: Connection[Any]
) -> None:
    strict.execute("select 1 from holdfast.chain_key")
    assert claim_key(other)
    other.commit()
    with pytest.raises(KeyConflict) as caught:
        claim_key(strict)
    assert caught.value.retryable
    strict.rollback()
    assert claim_key(strict) == set()


def test_a_free_key_is_claimed_at_every_level(strict: Connection[Any]) -> None:
    assert len(claim_key(strict)) == 1
    strict.commit()
