"""All that we use of psycopg without a promise in its documentation; no other module may.

Each part buys speed. `MISSING` names those that this release does not have, and two flags say what goes without them:

- `CAN_DRIVE`: our async connections wait for their socket with less work than psycopg's own. Otherwise psycopg waits.
- `CAN_SHARE_SESSIONS`: a caller's own statements run on a psycopg connection of its own that shares the pooled session,
  and a statement of ours that psycopg has prepared is sent without a cursor, in one message with BEGIN if it is the
  first. Otherwise the caller gets the pool's connection, which is closed afterwards; the pool prepares no statement, as
  behind a pooler; all statements go through cursors; and where connections are few, pools close unused ones instead of
  handing them to each other.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from operator import call
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from psycopg import AsyncConnection, Connection, OperationalError, capabilities, errors, pq
from psycopg.pq import ExecStatus, TransactionStatus

if TYPE_CHECKING:
    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGconn, PGresult
    from psycopg.waiting import Ready, Wait

RV = TypeVar("RV")
K = TypeVar("K", bound=Connection[Any] | AsyncConnection[Any])

CANCEL_S = 5.0

_CONNECTION = (
    *("wait", "lock", "_prepared", "_autocommit", "_isolation_level", "_num_transactions"),
    *("_get_tx_start_command", "_start_query"),
)
_PREPARED = ("_names", "_to_flush")
_HANDLERS = ("notice_handler", "notify_handler")
_MOVED = ("_prepared", "_autocommit", "_isolation_level")


def closed_session() -> PGconn:
    """Make a closed session: libpq refuses these words before it connects to anything."""
    session = pq.PGconn.connect_start(b"none")
    session.finish()
    return session


def _find_missing(owner: Any, title: str, names: Iterable[str]) -> list[str]:
    return [f"{title}.{name}" for name in names if not hasattr(owner, name)]


def _find_missing_in(title: str, names: Iterable[str]) -> list[str]:
    module = None
    with suppress(ImportError):
        module = import_module(title)
    return _find_missing(module, title, names)


def _find_missing_for_sessions() -> list[str]:
    found = _find_missing_in("psycopg.generators", ["execute", "send", "fetch_many"])
    for kind in (Connection, AsyncConnection):
        session = closed_session()
        try:
            connection: Any = kind(session)
        except TypeError:
            found.append(f"{kind.__name__}(pgconn)")
            continue
        found += _find_missing(session, "PGconn", _HANDLERS)
        found += _find_missing(connection, kind.__name__, _CONNECTION)
        prepared = getattr(connection, "_prepared", None)
        found += _find_missing(prepared, f"{kind.__name__}._prepared", _PREPARED)
    return found


_FOR_WAITING = _find_missing_in("psycopg.waiting", ["Wait", "Ready"])
_FOR_SESSIONS = _find_missing_for_sessions()
CAN_DRIVE = not _FOR_WAITING
CAN_SHARE_SESSIONS = not _FOR_SESSIONS
MISSING = tuple(dict.fromkeys([*_FOR_WAITING, *_FOR_SESSIONS]))
"""The parts that this release of psycopg does not have."""

if CAN_DRIVE:
    from psycopg.waiting import Ready, Wait

    # As plain numbers: arithmetic with members of an enumeration costs more than the rest of a wait.
    _READ, _WRITE = int(Wait.R), int(Wait.W)

if CAN_SHARE_SESSIONS:
    from psycopg import generators


class LinkConnection(AsyncConnection[Any]):
    """For one user, who bounds every wait and gives the connection up when a wait is cut short.

    Its socket stays registered from one statement to the next, so it is closed by `close` or `give_up` only.
    """

    _readiness: _SocketWait | None = None

    if CAN_DRIVE:

        async def wait(self, gen: PQGen[RV], interval: float = 0.0) -> RV:
            """Drive one of psycopg's operations to its end. Raises: OperationalError when the socket is gone."""
            if self._readiness is None:
                self._readiness = _SocketWait(asyncio.get_running_loop(), self.pgconn.socket)
            try:
                return await _drive(gen, self._readiness)
            except BaseException:
                self.forget_socket()
                raise

    async def close(self) -> None:
        """Say good-bye to the server."""
        self.forget_socket()
        await super().close()

    def give_up(self) -> None:
        """Close the socket and nothing else: `close` on a dead peer could wait."""
        self.forget_socket()
        self.pgconn.finish()

    def forget_socket(self) -> None:
        """Have the loop watch the socket no more, until the next wait."""
        if self._readiness is not None:
            self._readiness.close()


class PoolConnection(AsyncConnection[Any]):
    """For many users in turn: a cancelled one leaves a connection that the next can use."""

    if CAN_DRIVE:

        async def wait(self, gen: PQGen[RV], interval: float = 0.1) -> RV:
            """Drive one of psycopg's operations to its end. Raises: OperationalError when the socket is gone."""
            readiness = _SocketWait(asyncio.get_running_loop(), self.pgconn.socket)
            try:
                return await _drive(gen, readiness)
            except asyncio.CancelledError:
                readiness.close()
                if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                    with suppress(OperationalError):
                        await self.cancel_safe(timeout=CANCEL_S)
                    # The statement was cancelled, or the connection is lost; the caller's own end is what counts.
                    with suppress(OperationalError):
                        await super().wait(gen, interval)
                raise
            finally:
                readiness.close()


async def _drive(gen: PQGen[RV], readiness: _SocketWait) -> RV:
    """Drive an operation while the socket stays registered for the whole of it, and without a timer.

    psycopg registers and forgets the socket and starts a timer for each piece of an answer, and the server sends
    pieces of 8 kB: half of what a claim of 200 jobs costs a worker.
    """
    try:
        wanted = next(gen)
        while True:
            wanted = gen.send(await readiness.wait(wanted))
    except OSError as error:
        raise OperationalError("the connection's socket is closed") from error
    except StopIteration as end:
        result: RV = end.value
        return result


class _SocketWait:
    """A socket's readiness. The loop watches the socket from the first wait on, until `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: int) -> None:
        self._loop = loop
        self._socket = socket
        self._waiter: asyncio.Future[Ready] | None = None
        self._reads = False
        self._unexpected = 0
        self._looks: Callable[[int], object] | None = None
        if not isinstance(loop, asyncio.BaseEventLoop):
            # After an error uvloop watches a socket no more and does not say so: what is ready is not waited for.
            poll = select.poll()
            poll.register(socket, select.POLLIN)
            self._looks = poll.poll

    async def wait(self, wanted: Wait) -> Ready:
        """Wait until the socket can do what is wanted."""
        self._unexpected = 0
        if wanted & _READ and self._looks is not None and self._looks(0):
            return Ready.R
        self._waiter = self._loop.create_future()
        if wanted & _READ and not self._reads:
            self._loop.add_reader(self._socket, self._can, Ready.R)
            self._reads = True
        if not wanted & _WRITE:
            return await self._waiter
        self._loop.add_writer(self._socket, self._can, Ready.W)
        try:
            return await self._waiter
        finally:
            self._loop.remove_writer(self._socket)

    def close(self) -> None:
        """Forget the socket."""
        if self._reads:
            self._loop.remove_reader(self._socket)
            self._reads = False

    def _can(self, ready: Ready) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(ready)
            return
        # Once is only a turn of the loop; what the server says unasked is read with the next answer.
        self._unexpected += 1
        if self._unexpected > 1:
            self.close()


# The rest is for those who share sessions.


def read_answers(session: PGconn) -> PQGen[list[PGresult]]:
    """Read the answers to what was sent, as an operation for `Connection.wait`."""
    results: list[PGresult] = yield from generators.execute(session)
    return results


# Under which type psycopg sends a value: text, or unknown.
_TYPE_OF: dict[type[str | None], int] = {str: 25, NoneType: 0}
_BYTES_OF: dict[type[str | None], Callable[[Any], bytes | None]] = {
    str: str.encode,
    NoneType: {}.get,
}
_HAS_PIPELINE = capabilities.has_pipeline()


# The name of a statement that psycopg has prepared, and its values.
Prepared: TypeAlias = tuple[bytes, list[bytes | None]]


def find_prepared(connection: Any, text: bytes, values: Sequence[str | None]) -> Prepared | None:
    """Return a statement as it can be sent without a cursor, None for one that cannot."""
    prepared = connection._prepared
    kinds = list(map(type, values))
    key = (text, tuple(map(_TYPE_OF.__getitem__, kinds)))
    name = None if prepared.prepare_threshold is None else prepared._names.get(key)
    # libpq would take a NUL for the end of a value; a cursor refuses it.
    is_whole = "\0" not in "".join(filter(None, values))
    if name is None or not is_whole or not _HAS_PIPELINE or connection.pgconn.pipeline_status:
        return None
    prepared._names.move_to_end(key)
    return name, list(map(call, map(_BYTES_OF.__getitem__, kinds), values))


def run_prepared(
    connection: Any, statement: Prepared, ends: Sequence[bytes] = ()
) -> PQGen[PGresult]:
    """Run a prepared statement, after BEGIN where none was sent yet and before its ends, in one message.

    The first of the ends is COMMIT. Where something fails the rest is not run; what follows the commit may fail.
    """
    session = connection.pgconn
    begins = not connection._autocommit and session.transaction_status == TransactionStatus.IDLE
    first = [connection._get_tx_start_command()] if begins else []
    if len(first) == len(ends):
        # Between no BEGIN and no COMMIT it needs neither; between both, the server makes a transaction of it by itself.
        session.send_query_prepared(*statement)
        answers: list[PGresult] = yield from generators.execute(session)
        _check(answers)
        return answers[0]
    session.enter_pipeline_mode()
    for each in first:
        session.send_query_params(each, None)
    session.send_query_prepared(*statement)
    for each in ends:
        session.send_query_params(each, None)
    session.pipeline_sync()
    answers = yield from _read_pipeline(session)
    _check(answers[: len(first) + 2])
    return answers[len(first)]


def run_commit(connection: Any, ends: Sequence[bytes]) -> PQGen[None]:
    """Send COMMIT and what follows it in one message, if anything was begun."""
    if connection.pgconn.transaction_status != TransactionStatus.IDLE:
        connection.pgconn.send_query(b"; ".join(ends))
        answers = yield from generators.execute(connection.pgconn)
        _check(answers[:1])


def _check(answers: Iterable[PGresult]) -> None:
    for each in answers:
        if each.status == ExecStatus.FATAL_ERROR:
            raise errors.error_from_result(each)


def _read_pipeline(session: PGconn) -> PQGen[list[PGresult]]:
    yield from generators.send(session)
    answers: list[PGresult] = []
    try:
        while not answers or answers[-1].status != ExecStatus.PIPELINE_SYNC:
            answers += yield from generators.fetch_many(session)
    except OperationalError:
        # A server that ends the session says why first.
        if not any(each.status == ExecStatus.FATAL_ERROR for each in answers):
            raise
        return answers
    session.exit_pipeline_mode()
    return answers[:-1]


def begin_later(connection: Any, is_later: bool) -> None:
    """Have psycopg send BEGIN before the next statement, or no BEGIN at all."""
    connection._autocommit = not is_later


def begin_now(connection: Any) -> PQGen[None]:
    """Send the BEGIN that psycopg would send before the next statement, if it would."""
    yield from connection._start_query()


def forget_prepared(connection: Any) -> None:
    """Have psycopg know of no prepared statement, as a server after DISCARD ALL."""
    connection._prepared = type(connection._prepared)()


def count_prepared(connection: Any) -> int:
    """How many prepared statements psycopg knows of in the session."""
    return len(connection._prepared._names) + len(connection._prepared._to_flush)


def share_session(lent: Any, owner: Any) -> None:
    """Let a connection use another's session: in turn, and with the same statements prepared."""
    lent.lock = owner.lock
    lent._prepared = owner._prepared
    # The transaction may be one that begins with the first statement.
    lent._autocommit, lent._isolation_level = False, owner._isolation_level
    # So that commit() and rollback() are refused: the block ends the transaction.
    lent._num_transactions = 1


def take_session_back(lent: Any) -> None:
    """End the sharing; from now on the connection that was lent is closed."""
    session, lent.pgconn = lent.pgconn, closed_session()
    session.notice_handler = session.notify_handler = None
    with suppress(Exception):
        session.untrace()


def move_session(connection: Any, kind: type[K]) -> K:
    """Make a connection of another kind of this one: the session stays as it is."""
    moved = kind(connection.pgconn)
    connection.pgconn = closed_session()
    for name in _MOVED:
        setattr(moved, name, getattr(connection, name))
    return moved
