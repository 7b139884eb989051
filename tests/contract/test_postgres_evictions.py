"""Of all sessions only those end that bear the mark of a lost attempt, and that the role may end."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from psycopg import Connection, pq, sql

from holdfast.core.records import Held
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import run
from holdfast.storage.postgres.connection import PsycopgExecutor
from holdfast.storage.postgres.store import PostgresStore
from holdfast.storage.sql_loader import DEFAULT_SCHEMA
from tests.storage.roles import limited_role
from tests.support.postgres import PostgresServer
from tests.support.until import until

STORE = PostgresStore()
PATIENCE_S = 20.0
MARK = "select pg_advisory_xact_lock_shared(hashtext(%s), hashtext(%s))"
WIDE = "select pg_advisory_xact_lock_shared((hashtext(%s)::bigint << 32) | (hashtext(%s)::bigint & 4294967295))"
"""The same number by one key."""
ALONE = "select pg_advisory_xact_lock(hashtext(%s), hashtext(%s))"
WAITING = "select 1 from pg_locks where pid = %s and not granted"


@pytest.fixture
def stack(postgres_url: str) -> Iterator[ExitStack]:
    """What ends before the database goes."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def reaper(stack: ExitStack, postgres_url: str) -> Connection[Any]:
    return stack.enter_context(psycopg.connect(postgres_url, autocommit=True))


def attempt() -> Held:
    return Held(new_id(), new_id())


def holds(stack: ExitStack, url: str, text: str, of: Held) -> Connection[Any]:
    """A session with a lock by the token and the job of an attempt."""
    session = stack.enter_context(psycopg.connect(url))
    session.execute(text.encode(), [of.token, of.id])
    return session


def evict(reaper: Connection[Any], *lost: Held) -> int:
    return run(STORE.leases.evict(lost), PsycopgExecutor(reaper, DEFAULT_SCHEMA))


def has_ended(session: Connection[Any]) -> bool:
    try:
        return list(session.notifies(timeout=PATIENCE_S)) != []
    except psycopg.OperationalError:
        return True


async def test_a_session_that_bears_no_mark_of_what_was_lost_goes_on(
    stack: ExitStack, postgres_url: str, postgres_server: PostgresServer, reaper: Connection[Any]
) -> None:
    lost, locked = attempt(), attempt()
    elsewhere = stack.enter_context(postgres_server.database())
    marked = holds(stack, postgres_url, MARK, lost)
    alone = holds(stack, postgres_url, ALONE, locked)
    others = [
        alone,
        holds(stack, postgres_url, MARK, Held(lost.id, new_id())),
        holds(stack, postgres_url, MARK, Held(new_id(), lost.token)),
        holds(stack, postgres_url, WIDE, lost),
        holds(stack, elsewhere, MARK, lost),
    ]
    waiting = pq.PGconn.connect(postgres_url.encode())
    stack.callback(waiting.finish)
    text = f"select pg_advisory_lock_shared(hashtext('{locked.token}'), hashtext('{locked.id}'))"
    waiting.send_query(text.encode())
    await until(lambda: reaper.execute(WAITING, [waiting.backend_pid]).fetchall() != [])
    with reaper.transaction():
        reaper.execute(MARK, [lost.token, lost.id])
        assert evict(reaper, lost, locked) == 1
    assert has_ended(marked)
    for each in others:
        each.execute("select 1")
    alone.rollback()
    answer = waiting.get_result()
    assert answer is not None
    assert answer.status == pq.ExecStatus.TUPLES_OK


def test_a_role_leaves_the_sessions_alone_that_it_may_not_end(
    stack: ExitStack, postgres_url: str, reaper: Connection[Any]
) -> None:
    plain, neighbour, signaller = [
        stack.enter_context(limited_role(postgres_url, 5)) for _ in range(3)
    ]
    grant = sql.SQL("grant pg_signal_backend to {}")
    reaper.execute(grant.format(sql.Identifier(signaller.name)))
    lost = {url: attempt() for url in (postgres_url, plain.url, neighbour.url)}
    sessions = {url: holds(stack, url, MARK, each) for url, each in lost.items()}
    for role, url in ((plain.name, plain.url), (signaller.name, neighbour.url)):
        reaper.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
        assert evict(reaper, *lost.values()) == 1
        assert has_ended(sessions[url])
        reaper.execute("reset role")
    sessions[postgres_url].execute("select 1")
    assert evict(reaper, *lost.values()) == 1
    assert has_ended(sessions[postgres_url])


def test_a_guarded_transaction_may_be_idle_for_so_long(reaper: Connection[Any]) -> None:
    setting = "show idle_in_transaction_session_timeout"
    usual = reaper.execute(setting).fetchall()
    with reaper.transaction():
        run(STORE.leases.guard(7_000), PsycopgExecutor(reaper, DEFAULT_SCHEMA))
        assert reaper.execute(setting).fetchall() == [("7s",)]
    assert reaper.execute(setting).fetchall() == usual != [("7s",)]
