"""What a caller gets of a connection of ours for its own statements: psycopg's own, on the session of the pool's.

It is an object of its own, so whatever is set on it (row and cursor factories, adapters, handlers, modes) ends with its
transaction; what is set in the session is undone before that is lent again, see `tidying`. It counts what is done on
it, because a transaction has to ask the server what came of it only where something was done that we did not see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal, TypeAlias

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, generators, pq
from psycopg.abc import PQGen

from holdfast.storage.postgres.waiting import PoolConnection

# What the server calls statements that neither open, end nor undo a part of a transaction.
_QUIET = {"SELECT", "INSERT", "UPDATE", "DELETE", "MERGE"}


Used: TypeAlias = Literal["rows", "anything"]


class PooledConnection(Connection[Any]):
    """A connection of our pool.

    `used` says what its session may hold: None while only our statements were run on it, `rows` when a caller's were
    which at first sight only read and write rows. `resetting` is the reset that was sent and not yet answered.
    `prepares_after` is how often a statement is seen before it is prepared, None where nothing may be.
    """

    used: Used | None = None
    resetting: bytes | None = None
    prepares_after: int | None = None
    limit_ms: int | None = None
    # psycopg's own word for a connection that may end with its loop or process, unclosed and without a warning.
    _pool = None


class PooledAsyncConnection(PoolConnection):
    """The same in the other colour; `limit_ms` is how long a statement may take, None when nobody knows."""

    used: Used | None = None
    resetting: bytes | None = None
    prepares_after: int | None = None
    limit_ms: int | None = None
    _pool = None


# Which transaction this is: one that takes the place of another begins later, also with AND CHAIN.
_WHICH = b"select extract(epoch from pg_catalog.transaction_timestamp())::text"
_NO_ANSWER = b""
# A text of one statement that the server will call quiet. Nothing depends on it but when the server is asked.
_ROWS_ONLY = re.compile(rb"\s*(?:select|insert|update|delete|merge|with|values)\b[^;]*", re.I)


class Watched:
    """How much of what was done on a lent connection is known to have left the transaction as it was.

    `began` says which transaction it was before the first statement that could end it, None while there was none.
    """

    def __init__(self) -> None:
        self.is_taken = False
        self.done = 0
        self.known = 0
        self.began: bytes | None = None
        self._expects_rows = False

    def is_same(self, which: bytes) -> bool:
        """Say whether a transaction is the one that was open when this was lent."""
        return self.began is None or self.began == which != _NO_ANSWER

    @property
    def is_unasked(self) -> bool:
        """Whether the server has to say which transaction it is before anything else is done."""
        return self.began is None and not self._expects_rows

    @contextmanager
    def expecting(self, query: bytes) -> Iterator[None]:
        """Run a text; one that cannot end the transaction needs no question before it."""
        self._expects_rows = _ROWS_ONLY.fullmatch(query) is not None
        try:
            yield
        finally:
            self._expects_rows = False

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
        if self.watched.is_unasked:
            self.watched.began = super().wait(ask_which(self.pgconn))
        self.watched.done += 1
        return super().wait(*args, **kwargs)

    def take(self) -> LentConnection:
        """Leave it to the caller, who may use what it is made of."""
        if self.watched.is_unasked:
            self.watched.began = super().wait(ask_which(self.pgconn))
        self.watched.is_taken = True
        return self

    def run(self, query: bytes, params: Any) -> Cursor[Any]:
        """Run a statement whose answer shows what it was."""
        done = self.watched.done
        with self.watched.expecting(query):
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
        if self.watched.is_unasked:
            self.watched.began = await super().wait(ask_which(self.pgconn))
        self.watched.done += 1
        return await super().wait(*args, **kwargs)

    async def run(self, query: bytes, params: Any) -> AsyncCursor[Any]:
        """Run a statement whose answer shows what it was."""
        done = self.watched.done
        with self.watched.expecting(query):
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
        return self._conn.take() if self.is_answer else self._conn  # type: ignore[attr-defined]


class LentAsyncCursor(AsyncCursor[Any]):
    """The same in the other colour."""

    is_answer = False

    @property
    def connection(self) -> AsyncConnection[Any]:
        if self.is_answer:
            self._conn.watched.is_taken = True  # type: ignore[attr-defined]
        return self._conn


def ask_which(session: pq.abc.PGconn) -> PQGen[bytes]:
    """Ask the server which transaction is open; one that has failed cannot say."""
    session.send_query(_WHICH)
    (result,) = yield from generators.execute(session)
    answer = result.get_value(0, 0) if result.status == pq.ExecStatus.TUPLES_OK else None
    return answer or _NO_ANSWER


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
    lent.owner = owner


def _let_go(lent: Any) -> None:
    lent.owner.used = "rows" if lent.watched.is_known else "anything"
    session, lent.pgconn = lent.pgconn, _closed()
    session.notice_handler = session.notify_handler = None
    with suppress(Exception):
        session.untrace()


def _closed() -> pq.abc.PGconn:
    """A session that is none: libpq refuses these words before it connects to anything."""
    session = pq.PGconn.connect_start(b"none")
    session.finish()
    return session
