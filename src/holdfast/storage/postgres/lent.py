"""What a caller gets of a connection of ours for its own statements: psycopg's own, on the session of the pool's.

It is an object of its own, so whatever is set on it (row and cursor factories, adapters, handlers, modes) ends with its
transaction; what is set in the session is undone before that is lent again, see `tidying`. It counts what is done on
it, because a transaction has to ask the server what came of it only where something was done that we did not see.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, pq

from holdfast.storage.postgres.waiting import PoolConnection

# What the server calls statements that neither open, end nor undo a part of a transaction.
_QUIET = {"SELECT", "INSERT", "UPDATE", "DELETE", "MERGE"}


class PooledConnection(Connection[Any]):
    """A connection of our pool.

    `is_used` says that its session may hold what a caller's own statements left there; `prepares_after` is how often a
    statement is seen before it is prepared, None where nothing may be.
    """

    is_used: bool = False
    prepares_after: int | None = None
    # psycopg's own word for a connection that may end with its loop or process, unclosed and without a warning.
    _pool = None


class PooledAsyncConnection(PoolConnection):
    """The same in the other colour; `limit_ms` is how long a statement may take, None when nobody knows."""

    is_used: bool = False
    prepares_after: int | None = None
    limit_ms: int | None = None
    _pool = None


class Watched:
    """How much of what was done on a lent connection is known to have left the transaction as it was."""

    def __init__(self) -> None:
        self.is_taken = False
        self.done = 0
        self.known = 0

    @property
    def is_known(self) -> bool:
        """Whether no statement can have opened, ended or undone a part of the transaction."""
        return not self.is_taken and self.done == self.known


class LentConnection(Connection[Any]):
    """See this module."""

    def __init__(self, owner: PooledConnection) -> None:
        super().__init__(owner.pgconn)
        self.watched = Watched()
        self.cursor_factory = LentCursor
        _share(self, owner)

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        """Drive one of psycopg's operations; there is none that does not pass here."""
        self.watched.done += 1
        return super().wait(*args, **kwargs)

    def run(self, query: bytes, params: Any) -> Cursor[Any]:
        """Run a statement whose answer shows what it was."""
        done = self.watched.done
        cursor = self.execute(query, params)
        if is_quiet(cursor):
            self.watched.known += self.watched.done - done
        cursor.is_answer = True  # type: ignore[attr-defined]
        return cursor

    def give_back(self) -> None:
        """Leave the session to the next; whoever kept this object finds it closed."""
        _let_go(self)


class LentAsyncConnection(PoolConnection):
    """The same in the other colour."""

    def __init__(self, owner: PooledAsyncConnection) -> None:
        super().__init__(owner.pgconn)
        self.watched = Watched()
        self.cursor_factory = LentAsyncCursor
        _share(self, owner)

    async def wait(self, *args: Any, **kwargs: Any) -> Any:
        """Drive one of psycopg's operations; there is none that does not pass here."""
        self.watched.done += 1
        return await super().wait(*args, **kwargs)

    async def run(self, query: bytes, params: Any) -> AsyncCursor[Any]:
        """Run a statement whose answer shows what it was."""
        done = self.watched.done
        cursor = await self.execute(query, params)
        if is_quiet(cursor):
            self.watched.known += self.watched.done - done
        cursor.is_answer = True  # type: ignore[attr-defined]
        return cursor

    def give_back(self) -> None:
        """Leave the session to the next; whoever kept this object finds it closed."""
        _let_go(self)


class LentCursor(Cursor[Any]):
    """A cursor that tells when its connection is asked for; until it answers, psycopg itself does that."""

    is_answer = False

    @property
    def connection(self) -> Connection[Any]:
        if self.is_answer:
            self._conn.watched.is_taken = True  # type: ignore[attr-defined]
        return self._conn


class LentAsyncCursor(AsyncCursor[Any]):
    """The same in the other colour."""

    is_answer = False

    @property
    def connection(self) -> AsyncConnection[Any]:
        if self.is_answer:
            self._conn.watched.is_taken = True  # type: ignore[attr-defined]
        return self._conn


def is_quiet(cursor: Cursor[Any] | AsyncCursor[Any]) -> bool:
    """Say whether the server ran a single statement, and one that leaves the transaction as it was."""
    word, _, _ = (cursor.statusmessage or "").partition(" ")
    return word in _QUIET and len(cursor._results) == 1


def _share(lent: Any, owner: Any) -> None:
    """Let an object of its own use the session as the pool's does: in turn, and with the same statements prepared."""
    lent.lock = owner.lock
    lent._prepared = owner._prepared
    lent._autocommit = True
    # So that commit() and rollback() are refused: the block ends the transaction.
    lent._num_transactions = 1
    owner.is_used = True


def _let_go(lent: Any) -> None:
    session, lent.pgconn = lent.pgconn, _closed()
    session.notice_handler = session.notify_handler = None
    with suppress(Exception):
        session.untrace()


def _closed() -> pq.abc.PGconn:
    """A session that is none: libpq refuses these words before it connects to anything."""
    session = pq.PGconn.connect_start(b"none")
    session.finish()
    return session
