"""SQLAlchemy's Session and Connection, on whichever driver lies beneath them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import (
    DBAPIError,
    InvalidRequestError,
    PendingRollbackError,
    ResourceClosedError,
    UnboundExecutionError,
)
from sqlalchemy.orm import Session, scoped_session

from holdfast.client.providers import provider_of
from holdfast.client.providers.port import Access, Need, SyncProvider
from holdfast.client.providers.sqlalchemy_hooks import Review, SessionHooks
from holdfast.core.errors import (
    ConnectionClosed,
    DatabaseUnreachable,
    HoldfastError,
    NoTransaction,
    TransactionAborted,
    UnsupportedConnection,
)
from holdfast.storage.after_commit import AfterCommit, Hooks
from holdfast.storage.operation import SyncExecutor, run

AUTOCOMMIT_FIX = (
    'use an engine or connection whose isolation_level is not "AUTOCOMMIT"; with SQLite\'s '
    "isolation_level=None, begin in an event as SQLAlchemy's documentation shows"
)


class ConnectionProvider(SyncProvider):
    """A Connection of Core; nobody tells of its commit, for its event fires before it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def open(self, need: Need) -> Access[SyncExecutor]:
        return _driver_provider(begun(self._connection)).open(need)


class SessionProvider(SyncProvider):
    """A Session; only its transaction is used, nothing is flushed and nothing expires."""

    def __init__(self, session: Session | scoped_session[Any]) -> None:
        self._session: Session = session() if isinstance(session, scoped_session) else session

    def open(self, need: Need) -> Access[SyncExecutor]:
        access = _driver_provider(session_connection(self._session)).open(need)

        def review(hooks: Hooks) -> None:
            run(hooks.review(need.store), access.executor)

        return replace(access, after_commit=after_commit_of(self._session, review))


def session_connection(session: Session) -> Connection:
    """Return the connection of a session's transaction, begun as its first query would begin it."""
    with explained():
        return begun(session.connection())


def begun(connection: Connection) -> Connection:
    """Return the connection with its transaction begun as its next statement would begin it."""
    if connection.closed or connection.invalidated:
        raise ConnectionClosed("the SQLAlchemy connection is closed")
    with explained():
        if not connection.in_transaction():
            connection.begin()
    return connection


def after_commit_of(session: Session, review: Review) -> AfterCommit | None:
    """Return what runs hooks after a session's commit, None where it would tell too early."""
    # Bound to a Connection, a session may be joined into a transaction that outlives its commit.
    return None if isinstance(session.bind, Connection) else SessionHooks.of(session, review).add


def driver_connection(connection: Connection) -> Any:
    """Return the driver's own connection beneath SQLAlchemy's."""
    with explained():
        return connection.connection.driver_connection


def _driver_provider(connection: Connection) -> SyncProvider:
    provider = provider_of(driver_connection(connection), AUTOCOMMIT_FIX)
    assert isinstance(provider, SyncProvider)
    return provider


@contextmanager
def explained() -> Iterator[None]:
    """Say in our words why SQLAlchemy did not give what it was asked for."""
    try:
        yield
    except (InvalidRequestError, DBAPIError) as error:
        raise _in_our_words(error) from error


def _in_our_words(error: InvalidRequestError | DBAPIError) -> HoldfastError:
    if isinstance(error, UnboundExecutionError):
        return UnsupportedConnection(
            f"the session does not say which database is meant: {error}",
            help="pass session.connection(bind_arguments=…) of the right one",
        )
    if isinstance(error, PendingRollbackError):
        return TransactionAborted(f"the SQLAlchemy transaction has failed: {error}")
    if isinstance(error, ResourceClosedError):
        return ConnectionClosed(f"the SQLAlchemy connection is closed: {error}")
    if isinstance(error, DBAPIError):
        return DatabaseUnreachable(f"SQLAlchemy could not connect: {error.orig}")
    return NoTransaction(
        f"the SQLAlchemy session has no transaction: {error}",
        help="work inside `with session.begin():`",
    )
