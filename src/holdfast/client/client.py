"""Runs the producer's operations where they belong: on the caller's transaction, in its colour, or on our own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from holdfast.client.hints import Hints, HintSender
from holdfast.client.kinds import AsyncTx, SyncTx
from holdfast.client.providers import provider_of
from holdfast.client.providers.port import Access, AsyncProvider, Need, SyncProvider
from holdfast.client.url import Address
from holdfast.core.errors import UnsupportedConnection
from holdfast.core.model import Instant
from holdfast.storage.database import Database
from holdfast.storage.migrate import check_schema, load_migrations
from holdfast.storage.port import Store
from holdfast.storage.statement import Op, at, run, run_async

T = TypeVar("T")

_PACKAGES = {"postgresql": "holdfast.storage.postgres", "sqlite": "holdfast.storage.sqlite"}


@dataclass(frozen=True, slots=True)
class Write(Generic[T]):
    """An operation that writes jobs: how it runs, given the channel for its hints, and whom they concern."""

    op: Callable[[Store, str | None], Op[T]]
    types: Callable[[T], Iterable[str]]


class Client:
    """What all operations of a producer share. It connects to nothing by itself."""

    def __init__(
        self,
        address: Address,
        schema: str,
        database: Callable[[], Database],
        sender: HintSender | None,
        channel: str | None,
        instant: Callable[[], Instant | None] = lambda: None,
    ) -> None:
        self.store = _store_of(address)
        self._instant = instant
        self._dialect = address.dialect
        self._schema = schema
        self._database = database
        self._sender = sender
        self._channel = channel
        self._schema_is_known = False

    def write(self, tx: Any, write: Write[T]) -> T | Coroutine[Any, Any, T]:
        """Run an operation on the caller's transaction; on an async one return what is to be awaited."""
        provider = provider_of(tx)
        if isinstance(provider, AsyncProvider):
            return self._write_async(provider, write)
        return self._write(provider, write)

    def read(self, op: Op[T], tx: SyncTx | None = None) -> T:
        """Run an operation that only reads, on the caller's connection or on one of ours."""
        if tx is None:
            return self._database().read(op)
        provider = provider_of(tx)
        if isinstance(provider, AsyncProvider):
            raise UnsupportedConnection("the connection is async", help="use app.aio and await it")
        access = provider.open(self._need(writes=False))
        return run(self._checked(op), access.executor)

    async def read_async(self, op: Op[T], tx: AsyncTx | None = None) -> T:
        """The same in the other colour."""
        if tx is None:
            return await self._database().read_async(op)
        provider = provider_of(tx)
        if isinstance(provider, SyncProvider):
            raise UnsupportedConnection("the connection is sync", help="leave out .aio")
        access = await provider.open(self._need(writes=False))
        return await run_async(self._checked(op), access.executor)

    def _write(self, provider: SyncProvider, write: Write[T]) -> T:
        access = provider.open(self._need(writes=True))
        op = write.op(self.store, self._channel_of(access))
        result = run(self._checked(op), access.executor)
        self._hint(access, write.types(result))
        return result

    async def _write_async(self, provider: AsyncProvider, write: Write[T]) -> T:
        access = await provider.open(self._need(writes=True))
        op = write.op(self.store, self._channel_of(access))
        result = await run_async(self._checked(op), access.executor)
        self._hint(access, write.types(result))
        return result

    def _checked(self, op: Op[T]) -> Op[T]:
        """Look at the schema before the first operation of this process."""
        if not self._schema_is_known:
            applied = yield from self.store.schema.applied()
            check_schema(load_migrations(_PACKAGES[self._dialect]), applied)
            self._schema_is_known = True
        # Tests move time; everybody else has the database's clock.
        instant = self._instant()
        return (yield from op if instant is None else at(op, instant))

    def _need(self, writes: bool) -> Need:
        return Need(self._dialect, self._schema, writes)

    def _channel_of(self, access: Access[Any]) -> str | None:
        return self._channel if access.after_commit is None else None

    def _hint(self, access: Access[Any], types: Iterable[str]) -> None:
        if access.after_commit is None or self._sender is None:
            return
        concerned = frozenset(types)
        if concerned:
            access.after_commit(Hints(self._sender, concerned))


def _store_of(address: Address) -> Store:
    """Return the store's meaning; it needs no driver."""
    if address.dialect == "postgresql":
        from holdfast.storage.postgres.store import PostgresStore

        return PostgresStore()
    from holdfast.storage.sqlite.store import SqliteStore

    return SqliteStore()
