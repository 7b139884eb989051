"""Connections for one purpose: a worker's links, and the lock of a singleton cycle.

A link is opened at first use, replaced when lost, and bounded in every wait. Where the server refuses another session,
it runs its statements on the connection of another link of the same process, one at a time, and tries again now and
then for one of its own. Where handlers' transactions get none, all links but one give theirs up, see `shortage`. So a
worker needs two connections to work and all of them to work well.

A session that we gave up may go on in the server: nothing ends one whose commit waits for a standby. While it does, its
link gets no other, which would hang in the same way: in ten minutes they would fill the server.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, sql

from holdfast.core.errors import ConnectionClosed, DatabaseUnreachable, NoConnection
from holdfast.storage.operation import Op, run_async
from holdfast.storage.postgres.connection import (
    BEGIN_BY_INDEX,
    PsycopgAsyncExecutor,
    connection_string,
    is_pooled_async,
    remember_host,
    unreachable,
    was_refused,
)
from holdfast.storage.postgres.hosts import connect_async
from holdfast.storage.postgres.psycopg_internals import LinkConnection
from holdfast.storage.postgres.shortage import Shortage, shortage_of
from holdfast.storage.postgres.silence import shut_down

log = logging.getLogger("holdfast.storage")

T = TypeVar("T")

MIN_PAUSE_S, MAX_PAUSE_S = 1.0, 30.0
"""How long a link that found no room shares another's connection before it asks the server again."""

HUNG_PAUSE_MAX_S = 10.0
"""How long to wait, in the end, before asking again whether sessions that were given up are still there."""

_HUNG = """
select pid, coalesce(wait_event, '') from pg_catalog.pg_stat_activity
 where pid operator(pg_catalog.=) any (%s) and state operator(pg_catalog.=) 'active'
"""

_UNBLOCKED = ("heartbeat", "reaper")

# The server ends a statement at its own limit; this much later we no longer believe that it is there.
PATIENCE_S = 2.0


class HungSessions:
    """The sessions that links of one process gave up and that may still be there. Used from all its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pids: dict[PostgresLink, int] = {}
        self._reasons: dict[int, str] = {}
        self._ask_at = 0.0
        self._pause_s = 0.0

    def add(self, link: PostgresLink, pid: int) -> None:
        """Remember a session that was given up without an answer."""
        with self._lock:
            self._pids[link] = pid

    def forget(self, link: PostgresLink) -> None:
        """A link that was closed needs no other session."""
        with self._lock:
            self._pids.pop(link, None)

    def check(self, link: PostgresLink) -> None:
        """Refuse a link whose session was seen hanging a moment ago. Raises: DatabaseUnreachable."""
        with self._lock:
            is_early = time.monotonic() < self._ask_at
            reason = self._reasons.get(self._pids.get(link, 0))
        if is_early and reason is not None:
            raise _hanging_error(link, reason)

    async def ask(self, link: PostgresLink, connection: AsyncConnection[Any]) -> None:
        """Ask on a new connection which sessions are still there. Raises: DatabaseUnreachable if the link's own is."""
        with self._lock:
            pids = list(self._pids.values())
        if not pids:
            return
        found = dict(await (await connection.execute(_HUNG, [pids])).fetchall())
        with self._lock:
            self._reasons = found
            self._pids = {each: pid for each, pid in self._pids.items() if pid in found}
            reason = self._reasons.get(self._pids.get(link, 0))
            if reason is None:
                self._pause_s = 0.0 if not found else self._pause_s
                return
            self._pause_s = min(max(2 * self._pause_s, MIN_PAUSE_S), HUNG_PAUSE_MAX_S)
            self._ask_at = time.monotonic() + self._pause_s * (0.5 + random.random() / 2)
        raise _hanging_error(link, reason)


def _hanging_error(link: PostgresLink, wait_event: str) -> DatabaseUnreachable:
    if wait_event == "SyncRep":
        return DatabaseUnreachable(
            f"the last commit of the {link.purpose} connection still waits for the synchronous standby",
            help="start the standby, or take it out of synchronous_standby_names",
        )
    return DatabaseUnreachable(
        f"the last statement of the {link.purpose} connection still runs in the server"
        + (f" (it waits for {wait_event})" if wait_event else "")
    )


class OpenConnections:
    """The links of one process that have a connection. Used from all its threads."""

    def __init__(self, shortage: Shortage | None = None) -> None:
        self._lock = threading.Lock()
        self._links: list[PostgresLink] = []
        self._short: set[PostgresLink] = set()
        self.hung = HungSessions()
        self.shortage = shortage or Shortage()
        self.shortage.add(self)

    def add(self, link: PostgresLink) -> None:
        with self._lock:
            if link not in self._links:
                self._links.append(link)
            is_over = link in self._short and len(self._short) == 1
            self._short.discard(link)
        if is_over:
            log.info("every purpose has its own connection again")

    def note_shortage(
        self, link: PostgresLink, lender: PostgresLink, refusal: DatabaseUnreachable
    ) -> None:
        """Tell that a link has to share; once for all of them."""
        with self._lock:
            is_first = not self._short
            self._short.add(link)
        if is_first:
            log.warning(
                "the server refuses some connections of this process, %s shares that of %s: %s",
                link.purpose,
                lender.purpose,
                refusal,
            )

    def remove(self, link: PostgresLink) -> None:
        with self._lock, suppress(ValueError):
            self._links.remove(link)

    def forget(self, link: PostgresLink) -> None:
        """A link that was closed is short of nothing."""
        self.remove(link)
        self.hung.forget(link)
        with self._lock:
            self._short.discard(link)

    def give_way(self, entirely: bool) -> None:
        """See `shortage.GivesWay`; the link that stays is rather one of a thread that no handler can block."""
        with self._lock:
            links = sorted(self._links, key=lambda each: each.purpose not in _UNBLOCKED)
        for each in links if entirely else links[1:]:
            each.give_way()

    def lender(self, borrower: PostgresLink) -> PostgresLink | None:
        """Whose connection to share: rather one of the same loop, and the heartbeat's only when there is no other."""
        loop = asyncio.get_running_loop()
        with self._lock:
            open_connections = [each for each in self._links if each is not borrower and each.loop]
        open_connections.sort(key=lambda each: (each.loop is not loop, each.purpose == "heartbeat"))
        return open_connections[0] if open_connections else None


class PostgresLink:
    """See `storage.database.Link`."""

    def __init__(
        self,
        url: str,
        schema: str,
        purpose: str,
        statement_timeout_ms: int,
        prepare: bool,
        open_connections: OpenConnections | None = None,
        prepare_pooled: bool = False,
    ) -> None:
        self.purpose = purpose
        self._url = url
        self._schema = schema
        self._statement_timeout_ms = statement_timeout_ms
        self._limit_s = statement_timeout_ms / 1000 + PATIENCE_S
        self._prepare_threshold = 2 if prepare else None
        self._prepare_pooled = prepare_pooled
        self._is_pooled = False
        self._connection: LinkConnection | None = None
        self._executor: PsycopgAsyncExecutor | None = None
        self._busy = asyncio.Lock()
        self._lending = asyncio.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._open_connections = open_connections or OpenConnections()
        self._ask_again_at = 0.0
        self._pause_s = 0.0
        self._pid = 0
        self._giving_way: asyncio.Task[None] | None = None
        self._ends_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def run(self, op: Op[T]) -> Coroutine[Any, Any, T]:
        return self._run(op, is_atomic=False)

    def run_atomic(self, op: Op[T]) -> Coroutine[Any, Any, T]:
        return self._run(op, is_atomic=True)

    async def close(self) -> None:
        self._open_connections.forget(self)
        # Another link's statement may run here: closed under it, the connection would never answer.
        async with self._busy:
            connection, self._connection, self._executor = self._connection, None, None
            self._watch_no_more()
        if connection is not None:
            await connection.close()

    def give_way(self) -> None:
        """Give the connection up once nothing runs on it. From any thread."""
        if self.loop is not None:
            # The loop may have ended.
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._begin_to_give_way)

    def _begin_to_give_way(self) -> None:
        self._giving_way = asyncio.create_task(self._give_way())

    async def _give_way(self) -> None:
        async with self._busy:
            self._abandon()

    async def _run(self, op: Op[T], is_atomic: bool) -> T:
        async with self._busy:
            while True:
                if (executor := self._open_executor()) is not None:
                    return await self._execute(op, executor, is_atomic)
                try:
                    return await self._run_somewhere(op, is_atomic)
                except _GaveWay:
                    # Nothing was sent: another link has to lend, or a connection of our own be opened.
                    continue

    async def _run_somewhere(self, op: Op[T], is_atomic: bool) -> T:
        """Run an operation on a new connection of our own if there may be one, or else on another link's."""
        if self._is_to_share and (lender := self._open_connections.lender(self)) is not None:
            return await self._run_shared(lender, op, is_atomic)
        try:
            executor = await self._open_connection()
        except _Refused as refusal:
            lender = self._open_connections.lender(self)
            if lender is None:
                raise refusal.error from refusal.error.__cause__
            self._open_connections.note_shortage(self, lender, refusal.error)
            self._ask_later()
            return await self._run_shared(lender, op, is_atomic)
        return await self._execute(op, executor, is_atomic)

    @property
    def _is_to_share(self) -> bool:
        return self._open_connections.shortage.is_on or time.monotonic() < self._ask_again_at

    async def _run_shared(self, lender: PostgresLink, op: Op[T], is_atomic: bool) -> T:
        """Run an operation on another link's connection, which may live on another thread's loop."""
        lending = lender.lend(op, is_atomic, is_urgent=self.purpose == "heartbeat")
        assert lender.loop is not None
        if lender.loop is asyncio.get_running_loop():
            return await lending
        try:
            answer = asyncio.run_coroutine_threadsafe(lending, lender.loop)
        except RuntimeError as error:
            lending.close()
            raise DatabaseUnreachable("the loop of the shared connection has ended") from error
        limit = 2 * self._limit_s
        try:
            async with asyncio.timeout(limit):
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            raise DatabaseUnreachable(
                f"no answer on the shared {lender.purpose} connection for {limit:g} s"
            ) from None

    async def lend(self, op: Op[T], is_atomic: bool, is_urgent: bool) -> T:
        """Run an operation for another link, when nothing of our own runs. Raises: DatabaseUnreachable.

        Others wait in a line of their own, so that we wait for one of them at most, and so does what is urgent.
        """
        if is_urgent:
            return await self._lend(op, is_atomic)
        async with self._lending:
            return await self._lend(op, is_atomic)

    async def _lend(self, op: Op[T], is_atomic: bool) -> T:
        async with self._busy:
            executor = self._open_executor()
            if executor is None:
                raise _GaveWay
            return await self._execute(op, executor, is_atomic)

    def _open_executor(self) -> PsycopgAsyncExecutor | None:
        """Return what runs statements on our own connection, None where there is none that is open."""
        if self._executor is not None and self._executor.connection.closed:
            self._abandon()
        return self._executor

    def _ask_later(self) -> None:
        self._pause_s = min(max(2 * self._pause_s, MIN_PAUSE_S), MAX_PAUSE_S)
        self._ask_again_at = time.monotonic() + self._pause_s * (0.5 + random.random() / 2)

    async def _open_connection(self) -> PsycopgAsyncExecutor:
        self._open_connections.shortage.check_rest()
        self._open_connections.hung.check(self)
        # On Python 3.11 psycopg may lose a cancellation that comes as the server answers, and with it its caller's end.
        task = asyncio.create_task(self._open())
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._abandon()
            raise
        return task.result()

    async def _open(self) -> PsycopgAsyncExecutor:
        text = connection_string(
            self._url, self.purpose, self._statement_timeout_ms, only_by_index=True
        )
        try:
            self._connection = await connect_async(
                LinkConnection, text, autocommit=True, prepare_threshold=self._prepare_threshold
            )
            await self._look_around(self._connection)
        except DatabaseUnreachable:
            self._abandon()
            raise
        except (psycopg.OperationalError, OSError) as error:
            self._abandon()
            refusal = unreachable(self._url, error)
            if was_refused(error):
                raise _Refused(refusal) from error
            raise refusal from error
        remember_host(self._url, self._connection)
        self._pid = self._connection.info.backend_pid
        self._pause_s = self._ask_again_at = 0.0
        self._executor = PsycopgAsyncExecutor(self._connection, self._schema)
        self.loop = asyncio.get_running_loop()
        self._open_connections.add(self)
        return self._executor

    async def _look_around(self, connection: LinkConnection) -> None:
        """Ask the server what it is before anything else; one may let us in and answer nothing, as a pooler does whose
        own server is away. Raises: DatabaseUnreachable.
        """
        try:
            async with asyncio.timeout(self._limit_s):
                self._is_pooled = await is_pooled_async(connection)
                if self._is_pooled and not self._prepare_pooled:
                    connection.prepare_threshold = None
                await self._open_connections.hung.ask(self, connection)
        except TimeoutError:
            raise self._timeout_error() from None

    async def _execute(self, op: Op[T], executor: PsycopgAsyncExecutor, is_atomic: bool) -> T:
        """Run statements within the limit and in the caller's own task.

        Between a hint and its job every turn of the loop counts. What is cut short gives the connection up.
        """
        begun = self._watch()
        try:
            if self._is_pooled and self.purpose == "claim":
                # The pooler dropped the planner settings of the connection.
                return await _run_in_transaction(op, executor, BEGIN_BY_INDEX)
            if is_atomic:
                return await _run_in_transaction(op, executor, "begin")
            return await run_async(op, executor)
        except asyncio.CancelledError:
            self._give_up()
            raise
        except (DatabaseUnreachable, ConnectionClosed, psycopg.OperationalError) as error:
            if time.monotonic() - begun >= self._limit_s:
                self._give_up()
                raise self._timeout_error() from None
            if isinstance(error, DatabaseUnreachable):
                self._abandon()
                raise
            raise self._lost(error) from error
        finally:
            self._ends_at = None

    def _watch(self) -> float:
        """Have what begins now end in time; return when it began. A timer costs more than this, so one serves many."""
        begun = time.monotonic()
        self._ends_at = begun + self._limit_s
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._limit_s, self._check_limit)
        return begun

    def _watch_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_limit(self) -> None:
        self._timer = None
        if self._ends_at is None:
            return
        left = self._ends_at - time.monotonic()
        if left > 0:
            self._timer = asyncio.get_running_loop().call_later(left, self._check_limit)
        else:
            self._shut_down()

    def _timeout_error(self) -> DatabaseUnreachable:
        return DatabaseUnreachable(
            f"no answer on the {self.purpose} connection for {self._limit_s:g} s"
        )

    def _lost(self, error: Exception) -> DatabaseUnreachable:
        self._abandon()
        return DatabaseUnreachable(f"the {self.purpose} connection was lost: {error}")

    def _shut_down(self) -> None:
        """End the connection for those that wait on it."""
        if self._connection is not None:
            shut_down(self._connection)

    def _give_up(self) -> None:
        """Be rid of a connection whose statement may go on in the server."""
        if self._connection is not None:
            self._open_connections.hung.add(self, self._pid)
        self._abandon()

    def _abandon(self) -> None:
        self._open_connections.remove(self)
        self._watch_no_more()
        connection, self._connection, self._executor = self._connection, None, None
        if connection is not None:
            connection.give_up()


async def _run_in_transaction(op: Op[T], executor: PsycopgAsyncExecutor, begin: str) -> T:
    connection = executor.connection
    await connection.execute(begin, prepare=False)
    try:
        result = await run_async(op, executor)
    except Exception:
        # Not when it was cut short: the connection is given up then.
        with suppress(psycopg.Error):
            await connection.execute(_END, prepare=False)
        raise
    await connection.execute("commit", prepare=False)
    return result


class _GaveWay(Exception):
    """The link that was to lend has no connection any more."""


class _Refused(Exception):
    """The server gives us no other session: it has all that it may have, or will have none of us."""

    def __init__(self, error: DatabaseUnreachable) -> None:
        super().__init__(str(error))
        self.error = error


# In one message, so that no timeout strikes in between, and for the transaction alone: behind a pooler the session is
# another client's afterwards. Which of them a server knows depends on its version, so they are looked up.
_BEGIN = """
begin isolation level read committed;
select pg_catalog.set_config(name, '0', true) from pg_catalog.pg_settings
 where name operator(pg_catalog.=) any (array['idle_in_transaction_session_timeout', 'transaction_timeout'])
"""
_LOCK = sql.SQL("select pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended({}, 0))")
_PING = "select 1"
_END = "rollback"


class PostgresSingleton:
    """See `storage.database.Singleton`: an advisory lock in a transaction of its own, on a connection of its own.

    The transaction is READ COMMITTED and runs nothing but the lock and pings, by the simple protocol: a write would
    hold an xid, a portal left open its snapshot, and either would hold back vacuum for as long as the cycle runs.
    """

    def __init__(self, url: str, key: str, timeout_ms: int) -> None:
        self.key = key
        self._url = url
        self._timeout_ms = timeout_ms
        self._connection: AsyncConnection[Any] | None = None

    async def acquire(self) -> bool:
        try:
            return await self._within_limit(self._acquire())
        except (psycopg.Error, OSError, TimeoutError) as error:
            refusal = unreachable(self._url, error)
            if isinstance(refusal, NoConnection):
                shortage_of(self._url).begin()
            raise refusal from error

    async def ping(self) -> None:
        connection = self._connection
        if connection is None:
            raise DatabaseUnreachable(f"the lock {self.key} is not held")
        try:
            await self._within_limit(connection.execute(_PING))
        except (psycopg.Error, OSError, TimeoutError) as error:
            raise DatabaseUnreachable(f"the connection of lock {self.key} was lost") from error

    async def release(self) -> None:
        connection = self._connection
        if connection is not None:
            # Closing alone would free the lock only when the server notices.
            with suppress(psycopg.Error, OSError, TimeoutError):
                await self._within_limit(connection.execute(_END))
        self._drop()

    async def _acquire(self) -> bool:
        connection = await connect_async(
            AsyncConnection[Any],
            connection_string(self._url, "singleton", self._timeout_ms),
            autocommit=True,
            prepare_threshold=None,
        )
        remember_host(self._url, connection)
        self._connection = connection
        await connection.execute(_BEGIN)
        cursor = await connection.execute(_LOCK.format(sql.Literal(self.key)))
        row = await cursor.fetchone()
        if row is not None and row[0]:
            return True
        self._drop()
        return False

    async def _within_limit(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the server; what fails or is cut short gives the connection up, and with it the lock."""
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await work
        except BaseException:
            self._drop()
            raise

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.pgconn.finish()
