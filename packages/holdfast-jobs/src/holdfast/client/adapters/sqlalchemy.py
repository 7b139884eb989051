"""SQLAlchemy's Session and Connection, on whichever driver is below them.

Hooks wait in a session for the commit of the transaction they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from sqlalchemy import Connection, event
from sqlalchemy.exc import (
    DBAPIError,
    InvalidRequestError,
    PendingRollbackError,
    ResourceClosedError,
    UnboundExecutionError,
)
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from holdfast.client.adapters import adapter_of
from holdfast.client.adapters.base import Access, Need, SyncAdapter, review_hooks
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

_KEY = "holdfast.hooks"

Review: TypeAlias = Callable[[Hooks], None]
"""Asks the database which hooks belong to something that was not undone."""


class SessionHooks:
    """The hooks of one session, kept per transaction: a savepoint's rollback drops only its own.

    SQLAlchemy reports the savepoints that it made itself; the review after the commit finds all others.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[SessionTransaction, Hooks] = {}
        self._review: Review | None = None
        event.listen(session, "after_commit", self._on_commit)
        event.listen(session, "after_transaction_end", self._on_end)

    @classmethod
    def of(cls, session: Session, review: Review) -> Hooks:
        """Return the hooks of the transaction that a session is in; its events are listened to from then on."""
        found = session.info.get(_KEY)
        if not isinstance(found, cls):
            found = session.info[_KEY] = cls(session)
        found._review = review
        return found._waiting.setdefault(_innermost(session), Hooks())

    def _on_commit(self, session: Session) -> None:
        """Pass a released savepoint's hooks to the transaction around it, run those of the outermost."""
        transaction = _innermost(session)
        hooks = self._waiting.pop(transaction, None)
        if hooks is None:
            return
        if transaction.nested:
            self._waiting.setdefault(_around(transaction), Hooks()).update(hooks)
            return
        assert self._review is not None
        with review_hooks(hooks):
            self._review(hooks)
        hooks.run()

    def _on_end(self, session: Session, transaction: SessionTransaction) -> None:
        """Forget what was rolled back; what was committed has been passed on before."""
        self._waiting.pop(transaction, None)


def _innermost(session: Session) -> SessionTransaction:
    transaction = session.get_nested_transaction() or session.get_transaction()
    assert transaction is not None
    return transaction


def _around(savepoint: SessionTransaction) -> SessionTransaction:
    """Return the transaction of the database that a savepoint lies in; flushes add levels of their own."""
    outer = savepoint.parent
    while outer is not None and outer.parent is not None and not outer.nested:
        outer = outer.parent
    assert outer is not None
    return outer


AUTOCOMMIT_FIX = (
    'use an engine or connection whose isolation_level is not "AUTOCOMMIT"; with SQLite\'s '
    "isolation_level=None, begin in an event as SQLAlchemy's documentation shows"
)


class ConnectionAdapter(SyncAdapter):
    """A Connection of Core; its commit cannot be observed, because the event fires before it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def open(self, need: Need) -> Access[SyncExecutor]:
        return _driver_adapter(begun(self._connection)).open(need)


class SessionAdapter(SyncAdapter):
    """A Session; only its transaction is used, nothing expires, and only the last statement flushes."""

    def __init__(self, session: Session | scoped_session[Any]) -> None:
        self._session: Session = session() if isinstance(session, scoped_session) else session

    def open(self, need: Need) -> Access[SyncExecutor]:
        access = _driver_adapter(session_connection(self._session)).open(need)
        if need.is_last:
            self._session.flush()

        def review(hooks: Hooks) -> None:
            run(hooks.review(need.store), access.executor)

        return access._replace(after_commit=after_commit_of(self._session, review))


def session_connection(session: Session) -> Connection:
    """Return the connection of a session's transaction, begun as its first query would begin it."""
    with explain_errors():
        return begun(session.connection())


def begun(connection: Connection) -> Connection:
    """Return the connection with its transaction begun as its next statement would begin it."""
    if connection.closed or connection.invalidated:
        raise ConnectionClosed("the SQLAlchemy connection is closed")
    with explain_errors():
        if not connection.in_transaction():
            connection.begin()
    return connection


def after_commit_of(session: Session, review: Review) -> AfterCommit | None:
    """Return what runs hooks after a session's commit, None where it would tell too early."""
    # Bound to a Connection, a session may be joined into a transaction that outlives its commit.
    return None if isinstance(session.bind, Connection) else SessionHooks.of(session, review).add


def driver_connection(connection: Connection) -> Any:
    """Return the driver's own connection beneath SQLAlchemy's."""
    with explain_errors():
        return connection.connection.driver_connection


def _driver_adapter(connection: Connection) -> SyncAdapter:
    adapter = adapter_of(driver_connection(connection), AUTOCOMMIT_FIX)
    assert isinstance(adapter, SyncAdapter)
    return adapter


@contextmanager
def explain_errors() -> Iterator[None]:
    """Translate SQLAlchemy's refusals into our errors."""
    try:
        yield
    except (InvalidRequestError, DBAPIError) as error:
        raise _in_our_words(error) from error


def _in_our_words(error: InvalidRequestError | DBAPIError) -> HoldfastError:
    if isinstance(error, UnboundExecutionError):
        return UnsupportedConnection(
            f"the session does not determine which database to use: {error}",
            help="pass session.connection(bind_arguments=…) of the right one",
        )
    if isinstance(error, PendingRollbackError):
        return TransactionAborted(f"the SQLAlchemy transaction has failed: {error}")
    if isinstance(error, ResourceClosedError):
        return ConnectionClosed(f"the SQLAlchemy connection is closed: {error}")
    if isinstance(error, DBAPIError):
        return DatabaseUnreachable(f"SQLAlchemy could not connect: {error.orig}")
    return NoTransaction(
        f"the SQLAlchemy session has no transaction: {error}", help="use `with session.begin():`"
    )
