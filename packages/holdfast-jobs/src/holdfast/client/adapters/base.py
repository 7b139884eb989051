"""An adapter wraps a connection that the caller holds, and finds out what its library can do; ours are at the end.

The protocols of connections are for type checkers: sync or async shows in their methods, so no library is imported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
)

import msgspec

from holdfast.core.errors import WrongDatabase
from holdfast.storage.after_commit import AfterCommit, Hooks
from holdfast.storage.database import AsyncTransaction, Transaction
from holdfast.storage.operation import AsyncExecutor, SyncExecutor
from holdfast.storage.store import Store
from holdfast.storage.url import Dialect

if TYPE_CHECKING:
    from holdfast.storage.postgres.transaction import PostgresAsyncTransaction, PostgresTransaction
    from holdfast.storage.sqlite.transaction import SqliteAsyncTransaction, SqliteTransaction

E = TypeVar("E")
Given = ParamSpec("Given")
Answer = TypeVar("Answer", covariant=True)

log = logging.getLogger("holdfast.client")


class Need(msgspec.Struct, frozen=True):
    """What is about to be done on a connection: in which database, and whether anything is written.

    `is_last` says that it ends the transaction: what the library holds back is written before it.
    """

    store: Store
    schema: str
    writes: bool
    is_last: bool = False

    def check_dialect(self, found: Dialect) -> None:
        """Refuse a connection that cannot lead to the right database. Raises: WrongDatabase."""
        if found != self.store.dialect:
            raise WrongDatabase(
                f"the connection points to {found}, but Holdfast's database is {self.store.dialect}",
                help="set HOLDFAST_URL, or Holdfast(url), to the database of this connection",
            )


class Access(NamedTuple, Generic[E]):
    """A caller's connection, checked; `after_commit` is None where the commit cannot be observed."""

    executor: E
    after_commit: AfterCommit | None = None


@contextmanager
def review_hooks(hooks: Hooks) -> Iterator[None]:
    """Keep a committed transaction from failing because its undone parts cannot be determined."""
    try:
        yield
    except Exception:
        log.exception("the events of a committed transaction are dropped: its jobs cannot be read")
        hooks.forget()


# Plain classes: every start asks of which kind an adapter is, and a class that may be abstract answers slowly.
class SyncAdapter:
    """Wraps a connection whose statements are run by plain calls."""

    def open(self, need: Need) -> Access[SyncExecutor]:
        """Check connection and transaction; begin where the library would by itself.

        Raises: WrongDatabase, NoTransaction, TransactionAborted, ConnectionClosed,
        UnsupportedConnection.
        """
        raise NotImplementedError


class AsyncAdapter:
    """Wraps a connection whose statements are awaited."""

    async def open(self, need: Need) -> Access[AsyncExecutor]:
        """See `SyncAdapter.open`."""
        raise NotImplementedError


Adapter: TypeAlias = SyncAdapter | AsyncAdapter


class SyncConnection(Protocol):
    """psycopg Connection, SQLAlchemy Session and Connection, Django's connection, sqlite3 Connection."""

    def commit(self) -> None: ...


class AsyncConnection(Protocol):
    """psycopg AsyncConnection, SQLAlchemy AsyncSession and AsyncConnection, aiosqlite Connection."""

    def commit(self) -> Coroutine[Any, Any, None]: ...


class AsyncpgConnection(Protocol):
    """asyncpg Connection, which commits through its transactions only."""

    def is_in_transaction(self) -> bool: ...


class AsyncpgPoolConnection(Protocol):
    """What asyncpg's pool lends: a proxy that gets its methods at run time, so only its slots can be seen."""

    @property
    def _con(self) -> Any: ...

    @property
    def _holder(self) -> Any: ...


SyncTx: TypeAlias = Transaction | SyncConnection
AsyncTx: TypeAlias = AsyncTransaction | AsyncConnection | AsyncpgConnection | AsyncpgPoolConnection
AnyTx: TypeAlias = SyncTx | AsyncTx


class InTransaction(Protocol[Given, Answer]):
    """A method of a command, as type checkers see it."""

    @overload
    def __call__(self, tx: SyncTx, /, *args: Given.args, **options: Given.kwargs) -> Answer: ...
    @overload
    def __call__(
        self, tx: AsyncTx, /, *args: Given.args, **options: Given.kwargs
    ) -> Coroutine[Any, Any, Answer]: ...


class CommandMethod(Protocol[Given, Answer]):
    """The same in its class."""

    def __get__(self, owner: Any, kind: Any = None) -> InTransaction[Given, Answer]: ...


def in_transaction(
    method: Callable[Concatenate[Any, AnyTx, Given], Answer],
) -> CommandMethod[Given, Answer]:
    """Declare that a method, which ends in `Client.write`, answers at once, or on an async connection when awaited."""
    return method


class OwnAdapter(SyncAdapter):
    """A transaction of ours, which runs our statements and reports its commit itself."""

    def __init__(self, transaction: PostgresTransaction | SqliteTransaction) -> None:
        self._transaction = transaction

    def open(self, need: Need) -> Access[SyncExecutor]:
        need.check_dialect(self._transaction.dialect)
        self._transaction.check_open()
        return Access(self._transaction, self._transaction.after_commit)


class OwnAsyncAdapter(AsyncAdapter):
    """Async version of `OwnAdapter`."""

    def __init__(self, transaction: PostgresAsyncTransaction | SqliteAsyncTransaction) -> None:
        self._transaction = transaction

    async def open(self, need: Need) -> Access[AsyncExecutor]:
        need.check_dialect(self._transaction.dialect)
        self._transaction.check_open()
        return Access(self._transaction, self._transaction.after_commit)
