"""Transactions, sync and async, with hooks that run after the commit and never otherwise.

A caller's own statements run on a psycopg connection of its own that shares the pooled session. Whatever is set on it
(row and cursor factories, adapters, handlers, modes) ends with the transaction; what is set in the session is undone
before that is lent again, see `pool`. It counts what is done on it: the server has to be asked what came of a
transaction only where something was done that we did not see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar, overload

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, pq, sql
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

from holdfast.core.errors import ConnectionClosed, TransactionAborted
from holdfast.core.records import Held
from holdfast.storage.after_commit import Action, Hooks, Witness
from holdfast.storage.database import ended_by_caller
from holdfast.storage.operation import Row, Statement, run, run_async
from holdfast.storage.postgres.connection import (
    PsycopgAsyncExecutor,
    PsycopgExecutor,
    notify_statement,
)
from holdfast.storage.postgres.pool import (
    BEGIN,
    WHICH_TRANSACTION,
    PooledAsyncConnection,
    PooledConnection,
    which_transaction,
    which_transaction_async,
)
from holdfast.storage.postgres.psycopg_internals import (
    CAN_SHARE_SESSIONS,
    PoolConnection,
    begin_now,
    read_answers,
    run_commit,
    run_prepared,
    share_session,
    take_session_back,
)
from holdfast.storage.store import Store

P = TypeVar("P", bound="PooledConnection | PooledAsyncConnection")
L = TypeVar("L", bound="CallerConnection | CallerAsyncConnection | BorrowedConnection")

# The mark of an attempt comes in the same message. It waits for nobody, and ends with the transaction.
_BEGIN_MARKED = sql.SQL(
    "begin isolation level read committed; "
    "select pg_catalog.pg_try_advisory_xact_lock_shared("
    "pg_catalog.hashtext({token}), pg_catalog.hashtext({id}))"
)


# A transaction of its own, so that others do not queue for the server's one lock of NOTIFY while the commit before it
# waits for the disk. What it says is on the disk already, so it waits for none.
_COMMIT, _BEGIN_NOTIFY = b"commit", (b"begin", b"set local synchronous_commit = off")

# Nobody reads the answers of these, and nothing that a caller can know of the database is wrong if they come later.
_HOLDABLE = {"job_insert_new"}

TakeFlush: TypeAlias = Callable[[], PQGen[Any] | None]


class _Transaction(Generic[P, L]):
    """What sync and async transactions share: the pooled session, and the connection lent to the caller."""

    dialect: ClassVar[Literal["postgresql"]] = "postgresql"
    _executor: PsycopgExecutor | PsycopgAsyncExecutor

    def __init__(self, pooled: P, caller: Callable[[P, TakeFlush], L]) -> None:
        self.hooks = Hooks()
        self._pooled = pooled
        self._caller = caller
        self._lent: L | None = None
        self._held: Callable[..., PQGen[Any]] | None = None
        self._held_name = ""
        self._has_begun = False
        self._is_over = False

    def after_commit(self, action: Action, witness: Witness | None = None) -> None:
        """Have something done once this transaction has committed."""
        self.hooks.add(action, witness)

    def check_open(self) -> None:
        """Raises: ConnectionClosed after its end, NoTransaction when the caller has ended it, TransactionAborted."""
        self._check_not_over()
        self._check_begun()
        if self._pooled.pgconn.transaction_status == TransactionStatus.INERROR:
            raise TransactionAborted("a statement of this transaction failed before")

    def _hold(self, statement: Statement) -> bool:
        """Keep a statement back whose answer is not needed: it goes with COMMIT, or before whatever comes first."""
        can_wait = CAN_SHARE_SESSIONS and statement.name in _HOLDABLE
        prepared = self._executor.find_prepared(statement) if can_wait else None
        if prepared is not None:
            self._held, self._held_name = (
                partial(run_prepared, self._pooled, prepared),
                statement.name,
            )
        return prepared is not None

    def _take_flush(self) -> PQGen[Any] | None:
        """Return the operation that sends what was held back."""
        held, self._held = self._held, None
        return None if held is None else held()

    def _commit_operation(self) -> PQGen[Any]:
        """Return the operation that commits, with what was held back before it and notifications after it."""
        held, self._held = self._held, None
        sent = [notify_statement(*each) for each in self.hooks.take_notifications()]
        ends = [_COMMIT, *_BEGIN_NOTIFY, *sent, _COMMIT] if sent else [_COMMIT]
        return run_commit(self._pooled, ends) if held is None else held(ends)

    def end(self) -> None:
        """Leave the connection to the next."""
        self._is_over = True
        if self._lent is not None:
            self._lent.release()

    def _lend_connection(self) -> L:
        self._check_not_over()
        if self._lent is None:
            self._lent = self._caller(self._pooled, self._take_flush)
        return self._lent

    def _check_not_over(self) -> None:
        if self._is_over:
            raise ConnectionClosed(
                "the transaction has ended", help="do everything inside the app.transaction() block"
            )

    def _check_begun(self) -> None:
        if self._pooled.pgconn.transaction_status != TransactionStatus.IDLE:
            self._has_begun = True
        elif self._has_begun or self._pooled.autocommit:
            raise ended_by_caller()


class PostgresTransaction(_Transaction[PooledConnection, "CallerConnection | BorrowedConnection"]):
    """An open transaction; `connection` is psycopg's, for whatever `execute` does not cover."""

    _executor: PsycopgExecutor

    def __init__(self, pooled: PooledConnection, schema: str) -> None:
        super().__init__(pooled, CallerConnection if CAN_SHARE_SESSIONS else BorrowedConnection)
        self._executor = PsycopgExecutor(pooled, schema)

    @property
    def connection(self) -> Connection[Any]:
        """The connection for the caller's own statements."""
        return self._lend_connection().take()

    @overload
    def execute(self, statement: Statement) -> list[Row]: ...
    @overload
    def execute(self, statement: str, params: Any = None) -> Cursor[Row]: ...
    def execute(self, statement: Statement | str, params: Any = None) -> list[Row] | Cursor[Row]:
        """Run a statement of ours, or one of the caller's own as text."""
        if isinstance(statement, Statement):
            self.check_open()
            if (flush := self._take_flush()) is not None:
                self._run(flush)
            return [] if self._hold(statement) else self._executor.execute(statement)
        lent = self._lend_connection()
        self._check_begun()
        return lent.run(statement.encode(), params)

    def review(self, store: Store) -> None:
        """Ask the server, where something was done that it alone knows of: is this the transaction that began, and
        which hooks still hold? Raises: NoTransaction.
        """
        if self._lent is None or self._lent.tracker.is_known:
            return
        self.check_open()
        if not self._lent.tracker.is_same(self._lent.which()):
            raise ended_by_caller()
        run(self.hooks.review(store), self)

    def commit(self) -> None:
        """Commit. Raises: see `check_open`."""
        self.check_open()
        if CAN_SHARE_SESSIONS:
            self._run(self._commit_operation())
        else:
            self._pooled.commit()

    def _run(self, operation: PQGen[Any]) -> None:
        try:
            with self._pooled.lock:
                self._pooled.wait(operation)
        except psycopg.Error as error:
            raise self._executor.explain(error, self._held_name) from error

    def rollback(self) -> None:
        """Undo everything; where that fails, the pool gives the connection up."""
        self._held = None
        self.hooks.fail()
        with suppress(psycopg.Error):
            self._pooled.rollback()


class PostgresAsyncTransaction(
    _Transaction[PooledAsyncConnection, "CallerAsyncConnection | BorrowedAsyncConnection"]
):
    """Async version of `PostgresTransaction`."""

    _executor: PsycopgAsyncExecutor

    def __init__(self, pooled: PooledAsyncConnection, schema: str) -> None:
        super().__init__(
            pooled, CallerAsyncConnection if CAN_SHARE_SESSIONS else BorrowedAsyncConnection
        )
        self._executor = PsycopgAsyncExecutor(pooled, schema)

    @property
    def connection(self) -> AsyncConnection[Any]:
        """The connection for the caller's own statements."""
        return self._lend_connection().take()

    @overload
    async def execute(self, statement: Statement) -> list[Row]: ...
    @overload
    async def execute(self, statement: str, params: Any = None) -> AsyncCursor[Row]: ...
    async def execute(
        self, statement: Statement | str, params: Any = None
    ) -> list[Row] | AsyncCursor[Row]:
        """Run a statement of ours, or one of the caller's own as text."""
        if isinstance(statement, Statement):
            self.check_open()
            if (flush := self._take_flush()) is not None:
                await self._run(flush)
            return [] if self._hold(statement) else await self._executor.execute(statement)
        lent = self._lend_connection()
        self._check_begun()
        return await lent.run(statement.encode(), params)

    async def review(self, store: Store) -> None:
        """Async version of `review`."""
        if self._lent is None or self._lent.tracker.is_known:
            return
        self.check_open()
        if not self._lent.tracker.is_same(await self._lent.which()):
            raise ended_by_caller()
        await run_async(self.hooks.review(store), self)

    async def commit(self) -> None:
        """Commit. Raises: see `check_open`."""
        self.check_open()
        if CAN_SHARE_SESSIONS:
            await self._run(self._commit_operation())
        else:
            await self._pooled.commit()

    async def _run(self, operation: PQGen[Any]) -> None:
        try:
            async with self._pooled.lock:
                await self._pooled.wait(operation)
        except psycopg.Error as error:
            raise self._executor.explain(error, self._held_name) from error

    async def rollback(self) -> None:
        """Undo everything; where that fails, the pool gives the connection up."""
        self._held = None
        self.hooks.fail()
        with suppress(psycopg.Error):
            await self._pooled.rollback()


def begin_message(mark: Held | None = None) -> bytes:
    """The message that begins a transaction, with the mark of the attempt that it belongs to."""
    if mark is None:
        return BEGIN
    marked = _BEGIN_MARKED.format(token=sql.Literal(mark.token), id=sql.Literal(mark.id))
    return marked.as_bytes(None)


# What the server calls statements that neither open, end nor undo a part of a transaction.
_QUIET = {"SELECT", "INSERT", "UPDATE", "DELETE", "MERGE"}


_NO_ANSWER = b""
# A text of one statement that the server will call quiet. Nothing depends on it but when the server is asked.
_ROWS_ONLY = re.compile(rb"\s*(?:select|insert|update|delete|merge|with|values)\b[^;]*", re.I)


class StatementTracker:
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
    def expect(self, query: bytes) -> Iterator[None]:
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


class CallerConnection(Connection[Any]):
    """The connection of a caller's own statements."""

    def __init__(self, owner: PooledConnection, take_flush: TakeFlush) -> None:
        super().__init__(owner.pgconn)
        self._take_flush = take_flush
        self.tracker = StatementTracker()
        self.cursor_factory = CallerCursor
        self._owner = owner
        share_session(self, owner)

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        """Drive one of psycopg's operations; there is none that does not pass here."""
        if (flush := self._take_flush()) is not None:
            super().wait(flush)
        if self.tracker.is_unasked:
            self.tracker.began = self.which()
        self.tracker.done += 1
        return super().wait(*args, **kwargs)

    def which(self) -> bytes:
        """Ask the server which transaction is open."""
        return super().wait(ask_transaction(self._owner))

    def take(self) -> CallerConnection:
        """Leave it to the caller, who may use what it is made of."""
        if self.tracker.is_unasked:
            self.tracker.began = self.which()
        self.tracker.is_taken = True
        return self

    def release(self) -> None:
        """Return the session to the pool."""
        _release_session(self, self._owner)

    def run(self, query: bytes, params: Any) -> Cursor[Any]:
        """Run a statement whose answer shows what it was."""
        done = self.tracker.done
        with self.tracker.expect(query):
            cursor = self.execute(query, params)
        if is_row_statement(cursor, query, params):
            self.tracker.known += self.tracker.done - done
        cursor.is_answer = True  # type: ignore[attr-defined]
        return cursor


class CallerAsyncConnection(PoolConnection):
    """Async version of `CallerConnection`."""

    def __init__(self, owner: PooledAsyncConnection, take_flush: TakeFlush) -> None:
        super().__init__(owner.pgconn)
        self._take_flush = take_flush
        self.tracker = StatementTracker()
        self.cursor_factory = CallerAsyncCursor
        self._owner = owner
        share_session(self, owner)

    async def wait(self, *args: Any, **kwargs: Any) -> Any:
        """Drive one of psycopg's operations; there is none that does not pass here."""
        if (flush := self._take_flush()) is not None:
            await super().wait(flush)
        if self.tracker.is_unasked:
            self.tracker.began = await self.which()
        self.tracker.done += 1
        return await super().wait(*args, **kwargs)

    async def which(self) -> bytes:
        """Async version of `which`."""
        return await super().wait(ask_transaction(self._owner))

    def take(self) -> CallerAsyncConnection:
        """Leave it to the caller."""
        self.tracker.is_taken = True
        return self

    def release(self) -> None:
        """Return the session to the pool."""
        _release_session(self, self._owner)

    async def run(self, query: bytes, params: Any) -> AsyncCursor[Any]:
        """Run a statement whose answer shows what it was."""
        done = self.tracker.done
        with self.tracker.expect(query):
            cursor = await self.execute(query, params)
        if is_row_statement(cursor, query, params):
            self.tracker.known += self.tracker.done - done
        cursor.is_answer = True  # type: ignore[attr-defined]
        return cursor


class BorrowedConnection:
    """The pool's own connection instead, where sessions cannot be shared; the pool closes it afterwards."""

    def __init__(self, owner: Any, take_flush: TakeFlush) -> None:
        self._owner = owner
        self.tracker = StatementTracker()
        self.tracker.is_taken = True
        self.tracker.began = owner.began
        owner.used = "anything"

    def take(self) -> Any:
        return self._owner

    def run(self, query: bytes, params: Any) -> Any:
        return self._owner.execute(query, params)

    def which(self) -> Any:
        return which_transaction(self._owner)

    def release(self) -> None:
        """There is nothing to return."""


class BorrowedAsyncConnection(BorrowedConnection):
    """Async version of `BorrowedConnection`."""

    def which(self) -> Any:
        return which_transaction_async(self._owner)


class CallerCursor(Cursor[Any]):
    """A cursor that notices when a caller takes its connection; before its answer, only psycopg itself does."""

    is_answer = False

    @property
    def connection(self) -> Connection[Any]:
        lent = super().connection
        return lent.take() if self.is_answer else lent  # type: ignore[attr-defined]


class CallerAsyncCursor(AsyncCursor[Any]):
    """Async version of `CallerCursor`."""

    is_answer = False

    @property
    def connection(self) -> AsyncConnection[Any]:
        lent = super().connection
        return lent.take() if self.is_answer else lent  # type: ignore[attr-defined]


def ask_transaction(pooled: PooledConnection | PooledAsyncConnection) -> PQGen[bytes]:
    """Ask the server which transaction is open, or is to be; one that has failed cannot say."""
    yield from begin_now(pooled)
    pooled.pgconn.send_query(WHICH_TRANSACTION)
    (result,) = yield from read_answers(pooled.pgconn)
    answer = result.get_value(0, 0) if result.status == pq.ExecStatus.TUPLES_OK else None
    return answer or _NO_ANSWER


def is_row_statement(cursor: Cursor[Any] | AsyncCursor[Any], query: bytes, params: Any) -> bool:
    """Say whether the server ran a single statement, and one that leaves the transaction as it was."""
    word, _, _ = (cursor.statusmessage or "").partition(" ")
    # With parameters, the protocol takes one statement only.
    return word in _QUIET and (params is not None or b";" not in query.rstrip(_ENDS))


_ENDS = b"; \t\r\n"


def _release_session(lent: CallerConnection | CallerAsyncConnection, owner: Any) -> None:
    owner.used = "rows" if lent.tracker.is_known else "anything"
    take_session_back(lent)
