"""The simulated database: the real SQLite store, one statement at a time, behind a network with faults.

A request travels to the server, is executed there, and its answer travels back, each on its own: a process that is
paused or killed on the way leaves its statement to be executed all the same. A transaction of several requests holds
the write lock, as it does in SQLite; the server ends one that is idle for too long, as PostgreSQL does.

Claims are committed lazily (docs/adr/0006): a server that crashes may forget those since the last other commit. Where
there is a synchronous standby it is promoted instead, and claims wait for it as other writes do.
"""

import asyncio
import random
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeVar
from uuid import UUID

from holdfast.core.errors import ConnectionClosed, DatabaseBusy, DatabaseUnreachable
from holdfast.core.records import ClaimCommit, Held
from holdfast.storage.database import EnoughConnections, FreeSingleton
from holdfast.storage.operation import Op, Row, Statement, run
from holdfast.storage.sql_loader import DEFAULT_SCHEMA
from holdfast.storage.sqlite.connection import (
    LockWait,
    SqliteConnection,
    SqliteOptions,
    open_writer,
    translate,
)
from holdfast.storage.sqlite.migrations import apply_migrations
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.storage.sqlite.transaction import (
    SqliteAsyncTransaction,
    SqliteExecutor,
    SqliteTransaction,
)
from tests.simulation.world import World

T = TypeVar("T")

MEMORY = Path("/dev/shm")
LOST = (DatabaseUnreachable, DatabaseBusy, ConnectionClosed)
"""What a producer gets when nobody knows what became of its transaction."""
LOCK_WAIT_S = 5.0
ANSWER_S = 4.0
"""So long a process waits for an answer: longer than its leases."""
IDLE_S = 0.4
"""So long may a transaction be idle before the server ends it."""

Weather = Literal["cut", "lost_answers", "swallow", "slow"]
"""What happens to a process's requests: an error at once, an error after the commit, silence, or a long way."""

FLUSH_S = 0.6
"""So long after a lazy commit the server has flushed it by itself."""

TABLES = """
create table effect (job_id text not null, fence integer not null, name text not null);
create table taken (number integer not null, id text not null, key text not null);
create table setback (line integer not null, old integer not null, new integer not null);
create trigger position_moves after update of position on holdfast_log_position when new.position < old.position begin
  insert into setback values (new.line, old.position, new.position);
end;
delete from holdfast_log_line where line > 3;
drop view holdfast_clock;
create view holdfast_clock as select simulated_now() as now;
"""
_KEEP = """
select 'create temp table kept_' || name || ' as select * from main.' || name
  from sqlite_master where type = 'table' and name not glob 'sqlite_*' order by name
"""
_COPY_BACK = """
select 'select * from main.' || name, 'delete from main.' || name,
       'insert into main.' || name || ' values (' || places || ')'
  from (select m.name, (select group_concat('?') from pragma_table_info(m.name)) as places
          from sqlite_master m where m.type = 'table' and m.name not glob 'sqlite_*')
 order by name
"""
_RESET = """
select 'delete from main.' || name || '; insert into main.' || name || ' select * from kept_' || name || ';'
  from sqlite_master where type = 'table' and name not glob 'sqlite_*' order by name
"""


class DatabaseFile:
    """A database without a name. Runs empty it instead of making another, so that its statements stay prepared."""

    def __init__(self) -> None:
        self._world: World | None = None
        with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
            options = SqliteOptions(str(Path(directory) / "holdfast.db"))
            self.writing, self.reading = open_writer(options), open_writer(options)
            apply_migrations(self.writing, LockWait(LOCK_WAIT_S), lambda: str(UUID(int=1)))
            self.writing.executescript(TABLES)
            for each in (self.writing, self.reading):
                each.create_function("simulated_now", 0, self._now)
                # Nothing but the simulation itself crashes.
                each.execute("pragma synchronous = off")
            self._copy_back = self.writing.execute(_COPY_BACK).fetchall()
            reset = [text for (text,) in self.writing.execute(_RESET)]
            for (text,) in self.writing.execute(_KEEP).fetchall():
                self.writing.execute(text)
        self._reset = [each for text in reset for each in text.split(";") if each]

    def _now(self) -> int:
        assert self._world is not None
        return self._world.instant

    def prepare(self, world: World) -> None:
        """Make it what it was after its migration, on the clock of a world."""
        self._world, connection = world, self.writing
        if connection.in_transaction:
            connection.execute("rollback")
        connection.execute("begin immediate")
        for each in self._reset:
            connection.execute(each)
        connection.execute("commit")

    def copy(self) -> sqlite3.Connection:
        """Copy what is committed."""
        made = sqlite3.connect(":memory:")
        self.reading.backup(made)
        return made

    def restore(self, copy: sqlite3.Connection) -> None:
        """Make it what it was, row by row: after SQLite's own `backup`, all statements would be prepared again."""
        connection = self.writing
        connection.execute("begin immediate")
        for read, empty, write in self._copy_back:
            connection.execute(empty)
            if rows := copy.execute(read).fetchall():
                connection.executemany(write, rows)
        connection.execute("commit")


@cache
def database_file() -> DatabaseFile:
    """The one of this process."""
    return DatabaseFile()


class ClockedExecutor(SqliteExecutor):
    """Asks the world for the time, not the database for what the world told it; its connection is nobody else's."""

    def __init__(self, connection: sqlite3.Connection, world: World) -> None:
        super().__init__(connection)
        self._world = world

    def execute(self, statement: Statement) -> list[Row]:
        """Run one statement."""
        if statement.name == "clock":
            return [(self._world.instant,)]
        try:
            text = self._statements[statement.name]
            return self.connection.execute(text, statement.params).fetchall()
        except sqlite3.Error as error:
            raise translate(error, statement.name) or error from error


class Session:
    """A transaction of several requests, as the server has it."""

    def __init__(self, owner: str, inner: SqliteTransaction) -> None:
        self.owner = owner
        self.inner = inner
        self.is_over = False
        self.used_at = 0.0


class Server:
    """Executes what arrives, in its order."""

    def __init__(self, world: World, has_standby: bool = False) -> None:
        self.world = world
        self.has_standby = has_standby
        self.store = SqliteStore()
        self.loop = world.loop("server")
        file = database_file()
        file.prepare(world)
        self._file = file
        self._connection, self._reading = file.writing, file.reading
        self._executor = ClockedExecutor(file.writing, world)
        self._reader = ClockedExecutor(file.reading, world)
        self._holder: Session | None = None
        self._waiting: deque[tuple[float, Request]] = deque()
        self._before_lazy: sqlite3.Connection | None = None
        self._standby: sqlite3.Connection | None = None
        self._withheld: list[Request] = []
        self._gone: set[str] = set()
        self.down_until = 0.0
        self.era = 0
        """Counts its starts: what was sent to the server before its crash is not for the next one."""
        self.crashes_at: list[float] = []
        """When it is to crash or to lose its standby, so that what is forgotten then must be known."""

    # ---- What the network calls

    def receive(self, delay: float, request: "Request") -> None:
        """Execute a request once it has arrived."""
        self.loop.call_later(delay, self._arrive, request)

    def _arrive(self, request: "Request") -> None:
        if request.era != self.era or self.world.now < self.down_until:
            request.answer(None, DatabaseUnreachable("the server is down"))
        elif request.purpose == "read":
            self._read(request)
        elif self._holder is not None and request.session is not self._holder:
            self._waiting.append((self.world.now + LOCK_WAIT_S, request))
            self.loop.call_later(LOCK_WAIT_S, self._give_up_waiting)
        else:
            self._execute(request)

    def _read(self, request: "Request") -> None:
        """Readers see what is committed and wait for nobody."""
        try:
            self._reading.execute("begin")
            result = request.work(self._reader)
        except Exception as error:
            request.answer(None, error)
        else:
            request.answer(result, None)
        finally:
            self._reading.execute("rollback")

    def _execute(self, request: "Request") -> None:
        if self._standby is not None and not request.is_lazy:
            # It waits for a standby that is not there, and nobody sees what it wrote.
            self._withheld.append(request)
            return
        session = request.session
        if session is not None:
            self._execute_in(session, request)
            return
        if request.is_lazy and self._before_lazy is None and self._crashes_soon():
            self._before_lazy = self._file.copy()
        connection = self._connection
        try:
            connection.execute("begin immediate")
            result = request.work(self._executor)
            connection.execute("commit")
        except Exception as error:
            self._roll_back()
            request.answer(None, error)
            return
        if not request.is_lazy:
            self._before_lazy = None
        request.answer(result, None)

    def _execute_in(self, session: Session, request: "Request") -> None:
        if session.is_over or session.owner in self._gone:
            request.answer(None, DatabaseUnreachable("the server has ended this transaction"))
            return
        session.used_at = self.world.now
        try:
            result = request.work(self._executor)
        except Exception as error:
            request.answer(None, error)
        else:
            request.answer(result, None)
        if session.inner._lent is not None and self._holder is None:
            self._holder = session
            self.loop.call_later(IDLE_S, self._end_idle, session)
        elif session.inner._lent is None and self._holder is session:
            self._before_lazy = None
            self._release(session)

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("rollback")

    def _end_idle(self, session: Session) -> None:
        if session.is_over or self._holder is not session:
            return
        left = session.used_at + IDLE_S - self.world.now
        if left > 0:
            self.loop.call_later(left, self._end_idle, session)
        else:
            self.world.note(f"server ends the idle transaction of {session.owner}")
            self.end(session)

    def end(self, session: Session) -> None:
        """Roll a transaction back, if it is open: its client says so, or is gone."""
        if session.is_over:
            return
        session.inner.rollback()
        self._release(session)

    def _release(self, session: Session) -> None:
        session.is_over = True
        if self._holder is session:
            self._holder = None
        self.serve_waiting()

    def serve_waiting(self) -> None:
        """Execute what waits for the lock, but begin no transaction of a process that is paused: it would hold it."""
        left: deque[tuple[float, Request]] = deque()
        while self._waiting and self._holder is None:
            until, request = self._waiting.popleft()
            if request.session is not None and request.comes_from_paused:
                left.append((until, request))
            else:
                self._execute(request)
        self._waiting.extendleft(reversed(left))

    def _give_up_waiting(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.world.now:
            _, request = self._waiting.popleft()
            request.answer(None, DatabaseBusy("waited too long for the write lock"))

    # ---- What the faults call

    def disconnect(self, owner: str) -> None:
        """Notice that a process is gone: none of its transactions goes on, also of those that wait for the lock."""
        self._gone.add(owner)
        if self._holder is not None and self._holder.owner == owner:
            self.end(self._holder)

    def crash(self, down_s: float) -> None:
        """Die and be back after a while, without what was under way, and without claims that were not yet flushed."""
        self.era += 1
        self.down_until = self.world.now + down_s
        # Before its lock is free, or the first of them would take it.
        self._refuse_waiting("the server has crashed")
        if self._holder is not None:
            self.end(self._holder)
        if self._before_lazy is not None:
            self._file.restore(self._before_lazy)
            self._before_lazy = None

    @property
    def is_busy(self) -> bool:
        """Whether a transaction of several requests is open."""
        return self._holder is not None

    @property
    def is_cut_off(self) -> bool:
        """Whether it has lost its standby."""
        return self._standby is not None

    def cut_off(self) -> None:
        """Lose the standby, which has all that others were told is committed, and no claim that did not wait for it."""
        self._standby, self._before_lazy = self._before_lazy or self._file.copy(), None

    def promote(self) -> None:
        """Have the standby take over, and everybody find it."""
        assert self._standby is not None
        self.era += 1
        self._refuse_waiting("the primary is lost")
        if self._holder is not None:
            self.end(self._holder)
        self._file.restore(self._standby)
        self._standby = None

    def _refuse_waiting(self, why: str) -> None:
        left = [*self._withheld, *(request for _, request in self._waiting)]
        self._withheld.clear()
        self._waiting.clear()
        for each in left:
            each.answer(None, DatabaseUnreachable(why))

    def _crashes_soon(self) -> bool:
        now = self.world.now
        return any(now <= each <= now + FLUSH_S for each in self.crashes_at)

    # ---- What the run itself calls

    def run(self, op: Op[T]) -> T:
        """Run an operation at once, whatever the weather."""
        self._connection.execute("begin immediate")
        try:
            result = run(op, self._executor)
            self._connection.execute("commit")
            return result
        finally:
            self._roll_back()

    def query(self, text: str, *values: Any) -> list[Any]:
        """Read with a statement of the caller's own."""
        return self._connection.execute(text, values).fetchall()

    # ---- `ConnectionSource`, for transactions

    def take(self, wait_s: float) -> SqliteConnection:
        return self._connection

    def give(self, connection: SqliteConnection, broken: bool = False) -> None: ...

    def freeze(self) -> bool:
        return True

    def thaw(self) -> None: ...

    def close(self) -> None: ...


class Request:
    """Work on its way to the server and back."""

    def __init__(
        self,
        database: "SimulatedDatabase",
        purpose: str,
        work: Callable[[SqliteExecutor], Any],
        session: Session | None,
    ) -> None:
        self.purpose = purpose
        self.work = work
        self.session = session
        self.era = database.server.era
        self.is_lazy = purpose == "claim" and database.commits_claims_lazily
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._database = database
        self._loop: Any = asyncio.get_running_loop()

    @property
    def comes_from_paused(self) -> bool:
        """Whether its process is stopped."""
        return bool(self._loop.is_paused)

    def answer(self, result: Any, error: BaseException | None) -> None:
        """Send the answer back; at the server."""
        network = self._database.network
        delay, arrives = network.way_back(self)
        if arrives:
            self._loop.call_later(delay, self.settle, result, error)

    def settle(self, result: Any, error: BaseException | None) -> None:
        """Give its caller the answer, unless it has one or waits no longer."""
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class Network:
    """The way of one process to the server, with the weather that faults make."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._random = random.Random(f"network {world.seed} {name}")
        self._name = name
        self._weather: dict[Weather, tuple[float, str]] = {}
        self.faults = 0
        """How many requests met a fault."""

    def set(self, weather: Weather, seconds: float, purpose: str = "") -> None:
        """Have requests meet this for a while; those of one purpose, or all."""
        self._weather[weather] = (self._world.now + seconds, purpose)

    def _has(self, weather: Weather, purpose: str) -> bool:
        found = self._weather.get(weather)
        if found is None:
            return False
        until, only = found
        if self._world.now >= until:
            del self._weather[weather]
            return False
        return not only or only == purpose

    def send(self, server: Server, request: Request, timeout_s: float) -> None:
        """Send a request; at the client."""
        loop = asyncio.get_running_loop()
        delay = self._random.expovariate(1_000)
        if not self._weather:
            server.receive(delay, request)
            return
        if self._has("cut", request.purpose):
            self.faults += 1
            error = DatabaseUnreachable(f"{self._name}: the line was cut")
            loop.call_later(delay, request.settle, None, error)
            return
        if self._has("slow", request.purpose):
            self.faults += 1
            delay += self._random.uniform(0.5, 6)
        error = DatabaseUnreachable(f"{self._name}: no answer in time")
        loop.call_later(timeout_s, request.settle, None, error)
        if self._has("swallow", request.purpose):
            self.faults += 1
        else:
            server.receive(delay, request)

    def way_back(self, request: Request) -> tuple[float, bool]:
        """How long an answer takes, and whether it arrives; at the server."""
        delay = self._random.expovariate(1_000)
        if self._weather:
            if self._has("lost_answers", request.purpose):
                self.faults += 1
                error = DatabaseUnreachable(f"{self._name}: the line was cut before the answer")
                request._loop.call_soon_threadsafe(request.settle, None, error)
                return delay, False
            if self._has("swallow", request.purpose) or self._has("cut", request.purpose):
                self.faults += 1
                error = DatabaseUnreachable(f"{self._name}: no answer in time")
                request._loop.call_later(ANSWER_S, request.settle, None, error)
                return delay, False
        return delay, True


class SimulatedTransaction(SqliteAsyncTransaction):
    """A transaction whose requests travel."""

    def __init__(self, database: "SimulatedDatabase", session: Session) -> None:
        self._inner = session.inner
        self._database = database
        self._session = session

    def run_in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return self._database.send("transaction", lambda _: work(), ANSWER_S, self._session)


class SimulatedDatabase(EnoughConnections):
    """See `storage.database.Database`: what one process has of it."""

    schema = DEFAULT_SCHEMA
    url = "sqlite:///:memory:"

    def __init__(self, server: Server, owner: str, claims: ClaimCommit = "auto") -> None:
        self.server = server
        self.owner = owner
        self.commits_claims_lazily = claims == "lazy" or (
            claims == "auto" and not server.has_standby
        )
        self.store = server.store
        self.network = Network(server.world, owner)

    def send(
        self,
        purpose: str,
        work: Callable[[SqliteExecutor], T],
        timeout_s: float,
        session: Session | None = None,
    ) -> asyncio.Future[T]:
        """Have the server do something."""
        request = Request(self, purpose, work, session)
        self.network.send(self.server, request, timeout_s)
        return request.future

    def run(self, op: Op[T]) -> T:
        return self.server.run(op)

    async def run_async(self, op: Op[T]) -> T:
        return await self.send("client", lambda executor: run(op, executor), ANSWER_S)

    def read(self, op: Op[T], timeout_ms: int | None = None) -> T:
        return self.server.run(op)

    async def read_async(self, op: Op[T], timeout_ms: int | None = None) -> T:
        return await self.send("read", lambda executor: run(op, executor), ANSWER_S)

    @asynccontextmanager
    async def transaction_async(
        self, mark: Held | None = None, is_first: bool = False
    ) -> AsyncIterator[SimulatedTransaction]:
        inner = SqliteTransaction(self.server, LOCK_WAIT_S, self.store)
        session = Session(self.owner, inner)
        transaction = SimulatedTransaction(self, session)
        try:
            yield transaction
            await transaction.run_in_thread(inner.commit)
        except BaseException:
            # The client's end of the line is closed, which the server notices.
            self.server.end(session)
            raise
        inner.hooks.run()

    def link(self, purpose: str, statement_timeout_ms: int = 10_000) -> "SimulatedLink":
        return SimulatedLink(self, purpose, min(statement_timeout_ms / 1000, ANSWER_S))

    def singleton(self, key: str) -> FreeSingleton:
        return FreeSingleton(key)

    async def is_pooled(self) -> bool:
        return False

    def close(self) -> None: ...

    async def close_async(self) -> None: ...


class SimulatedLink:
    """See `storage.database.Link`."""

    def __init__(self, database: SimulatedDatabase, purpose: str, timeout_s: float) -> None:
        self.purpose = purpose
        self._database = database
        self._timeout_s = timeout_s

    async def run(self, op: Op[T]) -> T:
        return await self._database.send(
            self.purpose, lambda executor: run(op, executor), self._timeout_s
        )

    async def run_atomic(self, op: Op[T]) -> T:
        return await self.run(op)

    async def close(self) -> None: ...
