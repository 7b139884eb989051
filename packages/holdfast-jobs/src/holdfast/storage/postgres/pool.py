"""A pool that never lends a dead connection, resets sessions between users, and waits only for a user or the server.

Connections are opened by those who need them, one for each, up to the pool's size. When the server ended its sessions,
each idle connection shows it at the first look and is thrown away at once; a new one is tried every moment until the
server accepts it, so that callers are back right after a failover. (psycopg's own pool pauses 1, 2, 4, 8… seconds
between two tries, for each of its connections.) A server that has no room is asked less often, see `shortage`.

The reset is sent when the connection comes back and its answer is read when it is lent again, so nobody waits for it.
Settings, roles, temporary tables, channels listened to, cursors, locks and the last values of sequences go. Where no
statement but ours was run there is nothing to reset. The first message of the next user, mostly BEGIN, also shows that
the connection still works. One that came back a moment ago and has said nothing since needs no such proof: its BEGIN
goes in one message with the first statement. What lies in the pool unused is closed after a minute.
"""

from __future__ import annotations

import asyncio
import select
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent import futures
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import psycopg
from psycopg import Connection, errors
from psycopg.abc import PQGen
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from holdfast.core.errors import ConnectionClosed, DatabaseUnreachable, NoConnection
from holdfast.storage.postgres.connection import STATEMENT_TIMEOUT_MS, OwnAsyncCursor, OwnCursor
from holdfast.storage.postgres.psycopg_internals import (
    CAN_SHARE_SESSIONS,
    PoolConnection,
    begin_later,
    count_prepared,
    forget_prepared,
    move_session,
    read_answers,
)
from holdfast.storage.postgres.shortage import Shortage
from holdfast.storage.postgres.silence import LentConnections, LoopWatch, ThreadWatch
from holdfast.storage.postgres.store import translate

NOTHING = b""
"""The message of those who begin with none of their own."""

BEGIN = b"begin isolation level read committed"

# All that DISCARD ALL does but for prepared statements and plans, for callers who only read and wrote rows: without
# those every statement would be planned anew. The last answer shows whether they are still as psycopg knows them.
_RESET = (
    b"close all; set session authorization default; reset all; unlisten *; discard sequences; discard temp; "
    b"select pg_catalog.pg_advisory_unlock_all(), (select pg_catalog.count(*) from pg_catalog.pg_prepared_statements)"
)
_RESET_ALL = b"discard all"

_LIMIT = b"set statement_timeout = %d"

WHICH_TRANSACTION = (
    b"select extract(epoch from pg_catalog.transaction_timestamp())::pg_catalog.text"
)
"""Which transaction this is: one that takes the place of another begins later, also with AND CHAIN."""

_OK = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.EMPTY_QUERY)


Used: TypeAlias = Literal["rows", "anything"]


class _PooledSession:
    """The state of a connection's session in our pool.

    `used` says what it may hold: None while only our statements were run on it, `rows` when a caller's were which at
    first sight only read and write rows. `resetting` is the reset that was sent and not yet answered. `prepares_after`
    is how often a statement is seen before it is prepared, None where nothing may be. `limit_ms` is how long a
    statement may take, None when nobody knows. `began` says which transaction a caller got, where it is lent itself.
    `is_warm` says that it came back a moment ago and can have our statements prepared.
    """

    used: Used | None = None
    resetting: bytes | None = None
    prepares_after: int | None = None
    limit_ms: int | None = None
    began: bytes | None = None
    is_warm = False

    def __del__(self, *_: Any) -> None:
        """It may end with its loop or process, unclosed and without psycopg's warning."""


class PooledConnection(_PooledSession, Connection[Any]):
    """A connection of our pool."""


class PooledAsyncConnection(_PooledSession, PoolConnection):
    """Async version of `PooledConnection`."""


def send_reset(connection: PooledConnection | PooledAsyncConnection) -> None:
    """Have the server undo what a caller left, without waiting for it; fails on a connection that no longer works."""
    if connection.used is None:
        return
    if not CAN_SHARE_SESSIONS:
        raise psycopg.InterfaceError("a caller may have changed the connection itself")
    is_light = connection.used == "rows" and connection.prepares_after is not None
    connection.resetting = _RESET if is_light else _RESET_ALL
    connection.pgconn.send_query(connection.resetting)


def make_ready(connection: PooledConnection, first: bytes = NOTHING) -> None:
    """Have a connection be as good as new and send the first message; fails on one that no longer works."""
    if CAN_SHARE_SESSIONS:
        for step in _steps(connection, first):
            connection.wait(step)
        return
    connection.execute(first)
    connection.began = which_transaction(connection)


async def make_ready_async(
    connection: PooledAsyncConnection, first: bytes = NOTHING, limit_ms: int = STATEMENT_TIMEOUT_MS
) -> None:
    """Async version of `make_ready`, and have statements end after so long where the session is ours alone."""
    if CAN_SHARE_SESSIONS:
        for step in _steps(connection, first, limit_ms):
            await connection.wait(step)
        return
    await connection.execute(first)
    connection.began = await which_transaction_async(connection)


def which_transaction(connection: PooledConnection) -> bytes:
    """Ask the server which transaction is open, by psycopg's public interface."""
    cursor = OwnCursor(connection)
    cursor.execute(WHICH_TRANSACTION)
    return str(cursor.rows()[0][0]).encode()


async def which_transaction_async(connection: PooledAsyncConnection) -> bytes:
    """Async version of `which_transaction`."""
    cursor = OwnAsyncCursor(connection)
    await cursor.execute(WHICH_TRANSACTION)
    return str((await cursor.rows())[0][0]).encode()


def _steps(connection: Any, first: bytes, limit_ms: int | None = None) -> Iterator[PQGen[Any]]:
    if connection.resetting is not None:
        yield _collect_reset(connection)
    if connection.resetting is not None:
        connection.pgconn.send_query(connection.resetting)
        yield _collect_reset(connection)
    if limit_ms != connection.limit_ms and None not in (limit_ms, connection.prepares_after):
        yield _run(connection, _LIMIT % limit_ms)
        connection.limit_ms = limit_ms
    is_later = first == BEGIN and connection.is_warm and _is_quiet(connection)
    begin_later(connection, is_later)
    if not is_later:
        yield _run(connection, first)


def _is_quiet(connection: Any) -> bool:
    """Say whether the server has sent nothing since, not even its farewell."""
    if not hasattr(select, "poll"):
        return False
    watch = select.poll()
    watch.register(connection.fileno(), select.POLLIN)
    return not watch.poll(0)


def _collect_reset(connection: Any) -> PQGen[None]:
    """Read the answer to a reset; where prepared statements came or went unseen another one is to be sent."""
    results = yield from _answers(connection)
    if connection.resetting == _RESET and _prepared_unseen(connection, results[-1]):
        connection.resetting = _RESET_ALL
        return
    if connection.resetting == _RESET_ALL:
        forget_prepared(connection)
    connection.resetting = connection.used = None
    connection.prepare_threshold = connection.prepares_after
    connection.limit_ms = STATEMENT_TIMEOUT_MS


def _run(connection: Any, message: bytes) -> PQGen[list[PGresult]]:
    connection.pgconn.send_query(message)
    return (yield from _answers(connection))


def _answers(connection: Any) -> PQGen[list[PGresult]]:
    results: list[PGresult] = yield from read_answers(connection.pgconn)
    for each in results:
        if each.status not in _OK:
            raise errors.error_from_result(each)
    return results


def _prepared_unseen(connection: Any, answer: PGresult) -> bool:
    return int(answer.get_value(0, 1) or 0) != count_prepared(connection)


WAIT_S = 10.0
"""How long a caller waits for a connection, and for a server that is not there."""

IDLE_S = 60.0
"""An unused connection is closed after so long, so that it is left to those who need one."""

WARM_S = 1.0
"""For so long a connection that came back works as surely as one in the middle of a transaction."""

RETRY_S = 0.1

SHORT_WAIT_S = 2.0
"""How long those wait at most who would rather do something else, where there is no connection at all."""

C = TypeVar("C", PooledConnection, PooledAsyncConnection)


class _IdleConnections(Generic[C]):
    """The connections that nobody uses, the last used on top."""

    def __init__(self) -> None:
        self._idle: deque[tuple[C, float]] = deque()

    def put(self, connection: C) -> None:
        self._idle.append((connection, time.monotonic()))

    def take(self) -> C | None:
        try:
            connection, since = self._idle.pop()
        except IndexError:
            return None
        can_prepare = connection.prepares_after is not None
        connection.is_warm = can_prepare and time.monotonic() - since < WARM_S
        return connection

    def take_expired(self, idle_s: float) -> list[C]:
        """Take those that were not used for so long."""
        found = []
        now = time.monotonic()
        with suppress(IndexError):
            while self._idle[0][1] <= now - idle_s:
                found.append(self._idle.popleft()[0])
        return found

    def __len__(self) -> int:
        return len(self._idle)


def _none_free(
    size: int, trouble: DatabaseUnreachable | None, wait_s: float = WAIT_S
) -> DatabaseUnreachable:
    """Return the error of a caller who waited in vain; `trouble` is what keeps those before it from connecting."""
    if trouble is not None:
        return type(trouble)(
            f"{trouble.message}; {size} callers ahead of this one are still waiting for it",
            details=trouble.details,
            help=trouble.help,
        )
    return NoConnection(
        f"all {size} connections of this process were in use for {wait_s:g} s",
        help="raise HOLDFAST_CONNECTIONS, or hold transactions for a shorter time",
    )


def _is_reset(connection: C) -> bool:
    """Have a connection reset that comes back; say whether it can be lent again."""
    if connection.pgconn.transaction_status != TransactionStatus.IDLE:
        return False
    try:
        send_reset(connection)
    except psycopg.Error:
        return False
    return True


class PoolGroup:
    """What the `pools` of one database share where the server has too few connections: a line of callers that wait for
    one to come back to any of them. The first to come is the first to get one. Used from any thread.
    """

    def __init__(self, shortage: Shortage, pools: Callable[[], Sequence[AnyPool]]) -> None:
        self.shortage = shortage
        self.pools = pools
        self.returns = 0
        self._lock = threading.Lock()
        self._waiters: deque[futures.Future[Any]] = deque()

    def hand(self, connection: PooledConnection | PooledAsyncConnection) -> bool:
        """Give a connection that came back to the one that waits longest; False if nobody does."""
        if not self.shortage.is_on:
            return False
        with self._lock:
            self.returns += 1
            while self._waiters:
                waiter = self._waiters.popleft()
                if waiter.set_running_or_notify_cancel():
                    waiter.set_result(connection)
                    return True
        return False

    def join(self, returns: int) -> futures.Future[Any]:
        """Wait for a connection, unless one came back since there were so many `returns`."""
        waiter: futures.Future[Any] = futures.Future()
        with self._lock:
            if self.returns == returns:
                self._waiters.append(waiter)
            else:
                waiter.set_result(None)
        return waiter

    def leave(self, waiter: futures.Future[Any]) -> Any:
        """Wait no longer; return what the caller was given, if anything."""
        with self._lock:
            with suppress(ValueError):
                self._waiters.remove(waiter)
            return None if waiter.cancel() else waiter.result()


class _Pool(Generic[C]):
    """What both pools know of their connections."""

    def __init__(
        self, kind: type[C], lent: LentConnections[C], size: int, group: PoolGroup
    ) -> None:
        self._kind: type[C] = kind
        self._lent: LentConnections[C] = lent
        self._size = size
        self._group = group
        self._idle_connections: _IdleConnections[C] = _IdleConnections()
        self._trouble: DatabaseUnreachable | None = None
        self._shortage = group.shortage

    def take_idle(self) -> C | None:
        """Take a connection that nobody uses. From any thread."""
        return self._idle_connections.take()

    def _take(self) -> C | None:
        """Take one of ours; one of another pool, where the server has no room for both."""
        connection = self._idle_connections.take()
        if connection is None and self._shortage.is_on:
            others = (found for each in self._group.pools() if (found := each.take_idle()))
            return self._own(next(others, None))
        return connection

    def _own(self, connection: PooledConnection | PooledAsyncConnection | None) -> C | None:
        """Make a connection one of ours that comes from any pool; or close it, which leaves its place to us."""
        if connection is None or isinstance(connection, self._kind):
            return connection
        if not CAN_SHARE_SESSIONS:
            connection.pgconn.finish()
            self._shortage.ask_at = 0.0
            return None
        moved = move_session(connection, self._kind)
        for name in ("used", "resetting", "prepares_after", "limit_ms"):
            setattr(moved, name, getattr(connection, name))
        return moved

    def _take_unused(self, entirely: bool) -> Iterator[C]:
        """Take what nobody uses; one connection only if not `entirely`, for the next call may need the others."""
        while (connection := self._idle_connections.take()) is not None:
            yield connection
            if not entirely:
                return

    @property
    def in_hand(self) -> int:
        """How many connections it has, lent or not."""
        return len(self._lent) + len(self._idle_connections)

    def _wait_s(self, error: DatabaseUnreachable, deadline: float, short_wait_s: float) -> float:
        """How long to wait before the next try of one that waits until then; raise the error if that is in vain."""
        self._trouble = error
        now = time.monotonic()
        if isinstance(error, NoConnection) and not any(
            each.in_hand for each in self._group.pools()
        ):
            deadline -= WAIT_S - short_wait_s
        if now + RETRY_S >= deadline:
            raise error
        return min(max(self._shortage.ask_at - now, RETRY_S), deadline - now)


class PostgresPool(_Pool[PooledConnection]):
    """For threads. `connect` opens a connection."""

    def __init__(
        self, connect: Callable[[], PooledConnection], size: int, group: PoolGroup
    ) -> None:
        self._lent: ThreadWatch[PooledConnection] = ThreadWatch()
        super().__init__(PooledConnection, self._lent, size, group)
        self._connect = connect
        self._free = threading.Semaphore(size)
        self._closed = threading.Event()
        self._sweeper: threading.Timer | None = None
        self._sweeping = threading.Lock()
        self._shortage.add(self)

    @contextmanager
    def connection(
        self, make_ready: Callable[[PooledConnection], None], short_wait_s: float = WAIT_S
    ) -> Iterator[PooledConnection]:
        """Lend a connection that was made ready; one on which that fails is replaced. Raises: DatabaseUnreachable, and
        our error for whatever the driver raises in the block.

        While the server has no room and the pool has no connection, the caller waits for `short_wait_s`.
        """
        deadline = time.monotonic() + WAIT_S
        if not self._free.acquire(timeout=WAIT_S):
            raise _none_free(self._size, self._trouble)
        try:
            connection = self._working_connection(make_ready, deadline, short_wait_s)
            try:
                yield connection
            except (psycopg.Error, ConnectionClosed, DatabaseUnreachable) as error:
                trouble = self._lent.trouble(connection)
                if trouble is None:
                    raise
                raise trouble from error
            finally:
                self._lent.remove(connection)
                self._give_back(connection)
        except psycopg.Error as error:
            raise translate(error) or error from error
        finally:
            self._free.release()

    def give_way(self, entirely: bool) -> None:
        """See `shortage.GivesWay`."""
        for connection in self._take_unused(entirely):
            connection.close()

    def close(self) -> None:
        """Close what is idle now, and what is lent when it comes back."""
        self._closed.set()
        self._lent.close()
        with self._sweeping:
            sweeper, self._sweeper = self._sweeper, None
        if sweeper is not None:
            sweeper.cancel()
            sweeper.join()
        self._clear()

    def _clear(self) -> None:
        while (connection := self._idle_connections.take()) is not None:
            connection.close()

    def _working_connection(
        self, make_ready: Callable[[PooledConnection], None], deadline: float, short_wait_s: float
    ) -> PooledConnection:
        while True:
            returns = self._group.returns
            connection = self._take()
            is_new = connection is None
            try:
                connection = connection or self._open_connection()
            except DatabaseUnreachable as error:
                # Another may give its own back before the server has one for us.
                connection = self._wait(returns, self._wait_s(error, deadline, short_wait_s))
                if connection is None:
                    continue
            self._lent.add(connection)
            try:
                make_ready(connection)
            except BaseException as error:
                trouble = self._lent.trouble(connection)
                self._lent.remove(connection)
                connection.close()
                if trouble is not None:
                    raise trouble from error
                if not isinstance(error, psycopg.Error) or time.monotonic() >= deadline:
                    raise
                if is_new:
                    time.sleep(RETRY_S)
            else:
                self._trouble = None
                return connection

    def _wait(self, returns: int, seconds: float) -> PooledConnection | None:
        """Wait for a connection to come back, unless one did since there were so many `returns`."""
        waiter = self._group.join(returns)
        futures.wait([waiter], seconds)
        return self._own(self._group.leave(waiter))

    def _open_connection(self) -> PooledConnection:
        with self._shortage.ask_server(self):
            return self._connect()

    def _give_back(self, connection: PooledConnection) -> None:
        if self._closed.is_set() or not _is_reset(connection):
            connection.close()
            return
        if self._group.hand(connection):
            return
        self._idle_connections.put(connection)
        with self._sweeping:
            if self._sweeper is None and not self._closed.is_set():
                self._sweep_later()
        if self._closed.is_set():
            # The pool was closed between our look and now.
            self._clear()

    def _sweep_later(self) -> None:
        self._sweeper = threading.Timer(IDLE_S / 2, self._sweep)
        self._sweeper.daemon = True
        self._sweeper.start()

    def _sweep(self) -> None:
        for connection in self._idle_connections.take_expired(IDLE_S):
            connection.close()
        with self._sweeping:
            if self._sweeper is not None:
                self._sweeper = None
                if len(self._idle_connections):
                    self._sweep_later()


class PostgresAsyncPool(_Pool[PooledAsyncConnection]):
    """For the tasks of one event loop."""

    def __init__(
        self, connect: Callable[[], Awaitable[PooledAsyncConnection]], size: int, group: PoolGroup
    ) -> None:
        self._lent: LoopWatch[PooledAsyncConnection] = LoopWatch()
        super().__init__(PooledAsyncConnection, self._lent, size, group)
        self._connect = connect
        self._free = asyncio.Semaphore(size)
        self._closed = False
        self._sweeper: asyncio.TimerHandle | None = None
        self._opening: set[asyncio.Future[PooledAsyncConnection]] = set()
        self._shortage.add(self)

    @asynccontextmanager
    async def connection(
        self,
        make_ready: Callable[[PooledAsyncConnection], Awaitable[None]],
        wait_s: float = WAIT_S,
        short_wait_s: float = WAIT_S,
    ) -> AsyncIterator[PooledAsyncConnection]:
        """Async version of `PostgresPool.connection`."""
        deadline = time.monotonic() + wait_s
        try:
            async with asyncio.timeout(wait_s) if self._free.locked() else nullcontext():
                await self._free.acquire()
        except TimeoutError:
            raise _none_free(self._size, self._trouble, wait_s) from None
        try:
            connection = await self._working_connection(make_ready, deadline, short_wait_s)
            try:
                yield connection
            except (psycopg.Error, ConnectionClosed, DatabaseUnreachable) as error:
                trouble = self._lent.trouble(connection)
                if trouble is None:
                    raise
                raise trouble from error
            finally:
                self._lent.remove(connection)
                await self._give_back(connection)
        except psycopg.Error as error:
            raise translate(error) or error from error
        finally:
            self._free.release()

    def give_way(self, entirely: bool) -> None:
        """See `shortage.GivesWay`."""
        for connection in self._take_unused(entirely):
            connection.pgconn.finish()

    async def close(self) -> None:
        """Close what is idle now, and what is lent when it comes back."""
        self._closed = True
        self._lent.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._opening:
            await asyncio.wait(self._opening)
        while (connection := self._idle_connections.take()) is not None:
            await connection.close()

    async def _working_connection(
        self,
        make_ready: Callable[[PooledAsyncConnection], Awaitable[None]],
        deadline: float,
        short_wait_s: float,
    ) -> PooledAsyncConnection:
        while True:
            returns = self._group.returns
            connection = self._take()
            is_new = connection is None
            try:
                connection = connection or await self._open_connection()
            except DatabaseUnreachable as error:
                wait_s = self._wait_s(error, deadline, short_wait_s)
                connection = await self._wait(returns, wait_s)
                if connection is None:
                    continue
            self._lent.add(connection)
            try:
                await make_ready(connection)
            except BaseException as error:
                trouble = self._lent.trouble(connection)
                self._lent.remove(connection)
                await connection.close()
                if trouble is not None and not isinstance(error, asyncio.CancelledError):
                    raise trouble from error
                if not isinstance(error, psycopg.Error) or time.monotonic() >= deadline:
                    raise
                if is_new:
                    await asyncio.sleep(RETRY_S)
            else:
                self._trouble = None
                return connection

    async def _wait(self, returns: int, seconds: float) -> PooledAsyncConnection | None:
        """Async version of the wait in `PostgresPool`."""
        waiter = self._group.join(returns)
        try:
            await asyncio.wait([asyncio.wrap_future(waiter)], timeout=seconds)
        except asyncio.CancelledError:
            if (given := self._own(self._group.leave(waiter))) is not None:
                self._put_back(given)
            raise
        return self._own(self._group.leave(waiter))

    async def _open_connection(self) -> PooledAsyncConnection:
        """Open a connection, for others when the caller is gone: half opened it could not be closed."""
        with self._shortage.ask_server(self):
            opening = asyncio.ensure_future(self._connect())
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)
            try:
                await asyncio.wait([opening])
            except asyncio.CancelledError:
                opening.add_done_callback(self._keep)
                raise
            return opening.result()

    def _keep(self, opening: asyncio.Future[PooledAsyncConnection]) -> None:
        if opening.cancelled() or opening.exception() is not None:
            return
        if self._closed:
            opening.result().pgconn.finish()
        else:
            self._put_back(opening.result())

    async def _give_back(self, connection: PooledAsyncConnection) -> None:
        if self._closed or not _is_reset(connection):
            await connection.close()
        else:
            self._put_back(connection)

    def _put_back(self, connection: PooledAsyncConnection) -> None:
        if self._group.hand(connection):
            return
        self._idle_connections.put(connection)
        if self._sweeper is None:
            self._sweep_later()

    def _sweep_later(self) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(IDLE_S / 2, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        for connection in self._idle_connections.take_expired(IDLE_S):
            # Saying goodbye takes no time, but psycopg would have it awaited.
            connection.pgconn.finish()
        if len(self._idle_connections):
            self._sweep_later()


AnyPool: TypeAlias = PostgresPool | PostgresAsyncPool
