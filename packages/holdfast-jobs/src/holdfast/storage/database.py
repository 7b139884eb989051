"""Where operations run: a database, sync and async, its transactions, and the connections that a worker keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Protocol, TypeAlias, TypeVar, overload

from holdfast.core.duration import Duration
from holdfast.core.errors import NoTransaction
from holdfast.core.records import AppliedMigration, Held
from holdfast.storage.after_commit import Action, Witness
from holdfast.storage.migrations import WAIT, Tell, log_wait
from holdfast.storage.operation import Op, Row, Statement
from holdfast.storage.store import Store

T = TypeVar("T")

Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]
"""Values of a caller's own statement, in the driver's style."""

Raised: TypeAlias = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]
"""What left a block: the arguments of `__exit__`."""


class Transaction(Protocol):
    """An open transaction of ours; leaving its block commits or rolls back."""

    @overload
    def execute(self, statement: Statement) -> list[Row]:
        """Run a statement of ours."""

    @overload
    def execute(self, statement: str, params: Parameters = ...) -> Any:
        """Run a statement of the caller's own and return the driver's cursor."""

    @property
    def connection(self) -> Any:
        """The driver's connection, for the caller's own statements."""

    def after_commit(self, action: Action, witness: Witness | None = None) -> None:
        """Call an action once this transaction has committed, and never otherwise."""


class AsyncTransaction(Protocol):
    """Async version of `Transaction`."""

    @overload
    async def execute(self, statement: Statement) -> list[Row]:
        """Run a statement of ours."""

    @overload
    async def execute(self, statement: str, params: Parameters = ...) -> Any:
        """Run a statement of the caller's own and return the driver's cursor."""

    @property
    def connection(self) -> Any:
        """The driver's connection, for the caller's own statements."""

    def after_commit(self, action: Action, witness: Witness | None = None) -> None:
        """Call an action once this transaction has committed, and never otherwise."""


class Link(Protocol):
    """A connection kept for one purpose of a worker, replaced when it is lost; every statement has a timeout."""

    @property
    def purpose(self) -> str: ...

    async def run(self, op: Op[T]) -> T:
        """Run an operation of one statement. Raises: DatabaseUnreachable, DatabaseBusy."""

    async def run_atomic(self, op: Op[T]) -> T:
        """Run an operation in a transaction of its own. Raises: DatabaseUnreachable, DatabaseBusy."""

    async def close(self) -> None:
        """Give the connection up."""


class Singleton(Protocol):
    """A lock that one session of all replicas holds at a time, and that goes with its connection."""

    @property
    def key(self) -> str: ...

    async def acquire(self) -> bool:
        """Take the lock without waiting; False when another session has it. Raises: DatabaseUnreachable."""

    async def ping(self) -> None:
        """Prove that the lock is still held. Raises: DatabaseUnreachable when its connection is lost."""

    async def release(self) -> None:
        """Give it back; harmless when it is not held."""


class FreeSingleton:
    """A lock that is always free, where no other session could take it, or the slots' own rows are enough."""

    def __init__(self, key: str) -> None:
        self.key = key

    async def acquire(self) -> bool:
        return True

    async def ping(self) -> None:
        pass

    async def release(self) -> None:
        pass


class EnoughConnections:
    """The part of a database that is never short of connections."""

    connections_in_hand: int | None = None

    async def reserve_connection(self) -> bool:
        return True

    def make_room(self) -> None:
        pass

    def leave_unused(self) -> None:
        pass

    def rest(self, seconds: float) -> None:
        pass


class Database(Protocol):
    """One database: the store's meaning with connections under it."""

    @property
    def store(self) -> Store: ...

    @property
    def schema(self) -> str:
        """The PostgreSQL schema of the tables; SQLite has none and says the default."""

    @property
    def url(self) -> str:
        """Where it is, without secrets."""

    def run(self, op: Op[T]) -> T:
        """Run an operation in a short transaction of its own."""

    async def run_async(self, op: Op[T]) -> T:
        """Async version of `run`."""

    def read(self, op: Op[T], timeout_ms: int | None = None) -> T:
        """Run an operation that only reads, under a statement timeout, without waiting for writers."""

    async def read_async(self, op: Op[T], timeout_ms: int | None = None) -> T:
        """Async version of `read`."""

    def transaction(
        self, mark: Held | None = None, is_first: bool = False
    ) -> AbstractContextManager[Transaction]:
        """Open a transaction for the caller's work and ours.

        One that is marked with an attempt is ended from outside when the attempt is lost, see `LeaseStore.evict`. An
        attempt that has done nothing before its `is_first` one is put back soon if the server has no room.
        """

    def transaction_async(
        self, mark: Held | None = None, is_first: bool = False
    ) -> AbstractAsyncContextManager[AsyncTransaction]:
        """Async version of `transaction`."""

    def snapshot(self) -> AbstractContextManager[Any]:
        """Lend a connection of the driver that sees one state of the database for a long time and cannot write."""

    def link(self, purpose: str, statement_timeout_ms: int = 10_000) -> Link:
        """Make a link; it connects at its first use."""

    def singleton(self, key: str) -> Singleton:
        """Make a lock; it connects when it is acquired."""

    @property
    def connections_in_hand(self) -> int | None:
        """How many connections there are for callers' transactions, in use or not, where the server was short of them
        a moment ago; None where it was not, so that any number may be asked for.
        """

    async def reserve_connection(self) -> bool:
        """Have a connection in hand that no transaction uses yet; False when the server has none to spare."""

    def make_room(self) -> None:
        """Give up connections that can be done without: something else in this process needs one."""

    def leave_unused(self) -> None:
        """Leave the connections to other processes that no transaction uses now."""

    def rest(self, seconds: float) -> None:
        """Leave all connections to other processes, as far as nothing runs on them, and open none for so long."""

    def migrate(self, wait: Duration = WAIT, tell: Tell = log_wait) -> list[AppliedMigration]:
        """Bring the schema up to date under a lock; return what was applied.

        It waits for other transactions for so long in all, and tells for which. Raises: MigrationBlocked.
        """

    def check(self) -> list[AppliedMigration]:
        """Refuse a schema that this code does not understand; return what is applied."""

    async def check_async(self) -> list[AppliedMigration]:
        """Async version of `check`."""

    async def is_pooled(self) -> bool:
        """Say whether a pooler is between this process and the server."""

    def close(self) -> None:
        """Close every sync connection."""

    async def close_async(self) -> None:
        """Close every connection of the running loop, then the sync ones."""


def ended_by_caller() -> NoTransaction:
    """The error for a transaction whose block found it committed or rolled back by hand."""
    return NoTransaction(
        "the transaction was ended inside its block",
        help="let the block commit and roll back; raise an exception to roll back",
    )
