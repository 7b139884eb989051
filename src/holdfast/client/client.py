"""Runs the producer's operations where they belong: on the caller's transaction, in its colour, or on our own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.client.hints import Hints, HintSender
from holdfast.client.kinds import AsyncTx, SyncTx
from holdfast.client.providers import provider_of
from holdfast.client.providers.port import Access, AsyncProvider, Need, SyncProvider
from holdfast.client.tracing import BeginSpan, Sending, Trace, ambient_trace
from holdfast.client.url import Address
from holdfast.core.errors import UnsupportedConnection
from holdfast.core.events import Event, Observer
from holdfast.core.records import Instant
from holdfast.notify.base import Hint
from holdfast.notify.encoding import encode
from holdfast.storage.after_commit import Witness
from holdfast.storage.database import Database
from holdfast.storage.migrations import check_schema, load_migrations
from holdfast.storage.operation import Op, at, run, run_async
from holdfast.storage.store import Store

T = TypeVar("T")

_PACKAGES = {"postgresql": "holdfast.storage.postgres", "sqlite": "holdfast.storage.sqlite"}


class Conditions(msgspec.Struct, frozen=True):
    """What a transaction allows: hints within it, where nobody tells of its commit, and a trace for new jobs."""

    channel: str | None = None
    trace: Trace | None = None


class Write(msgspec.Struct, Generic[T], frozen=True):
    """An operation that writes jobs, and what is said of its result after the commit: hints and events.

    A caller can undo all of it or nothing, so one of its jobs can be the witness of the whole.
    """

    op: Callable[[Store, Conditions], Op[T]]
    hints: Callable[[T], Sequence[Hint]]
    events: Callable[[T], Sequence[Event]] = lambda _: ()
    witness: Callable[[T], Witness | None] = lambda _: None
    notifies: bool = False
    """Whether the operation itself sends its hints where they are part of the transaction."""


@dataclass(slots=True)
class Voice:
    """How a producer makes itself heard: hints to workers, events to observers, spans to whoever traces."""

    sender: HintSender | None = None
    channel: str | None = None
    observer: Observer | None = None
    begin_span: BeginSpan | None = None


class Client:
    """What all operations of a producer share. It connects to nothing by itself."""

    def __init__(
        self,
        address: Address,
        schema: str,
        database: Callable[[], Database],
        voice: Voice,
        instant: Callable[[], Instant | None] = lambda: None,
    ) -> None:
        self.store = _store_of(address)
        self._instant = instant
        self._dialect = address.dialect
        self._schema = schema
        self._database = database
        self._voice = voice
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
        sending = self._sending(access)
        op = self._heard(write, self._conditions(access, sending))
        result = run(self._checked(op), access.executor)
        self._announce(access, write, result, sending)
        return result

    async def _write_async(self, provider: AsyncProvider, write: Write[T]) -> T:
        access = await provider.open(self._need(writes=True))
        sending = self._sending(access)
        op = self._heard(write, self._conditions(access, sending))
        result = await run_async(self._checked(op), access.executor)
        self._announce(access, write, result, sending)
        return result

    def _checked(self, op: Op[T]) -> Op[T]:
        """Look at the schema before the first operation of this process."""
        # Tests move time; everybody else has the database's clock.
        instant = self._instant()
        if instant is not None:
            op = at(op, instant)
        return op if self._schema_is_known else self._first(op)

    def _first(self, op: Op[T]) -> Op[T]:
        applied = yield from self.store.schema.applied()
        check_schema(load_migrations(_PACKAGES[self._dialect]), applied)
        self._schema_is_known = True
        return (yield from op)

    def _need(self, writes: bool) -> Need:
        return Need(self.store, self._schema, writes)

    def _heard(self, write: Write[T], conditions: Conditions) -> Op[T]:
        """Run a write; where nobody tells of the commit its hints are part of the transaction."""
        op = write.op(self.store, conditions)
        if conditions.channel is None or write.notifies:
            return op
        return self._notified(op, write, conditions.channel)

    def _notified(self, op: Op[T], write: Write[T], channel: str) -> Op[T]:
        result = yield from op
        payloads = encode(write.hints(result))
        if payloads:
            yield from self.store.schema.notify(channel, payloads)
        return result

    def _sending(self, access: Access[Any]) -> Sending | None:
        """Begin to send, where somebody traces and the commit will be known."""
        begin = self._voice.begin_span
        return None if begin is None or access.after_commit is None else Sending(begin)

    def _conditions(self, access: Access[Any], sending: Sending | None) -> Conditions:
        channel = self._voice.channel if access.after_commit is None else None
        return Conditions(channel, ambient_trace() if sending is None else sending.trace)

    def _announce(
        self, access: Access[Any], write: Write[T], result: T, sending: Sending | None
    ) -> None:
        """Have everything said after the commit that is to be said of a write."""
        if access.after_commit is None:
            return
        voice = self._voice
        witness = write.witness(result)
        hints = write.hints(result)
        if hints and voice.sender is not None:
            access.after_commit(Hints(voice.sender, tuple(hints)), witness)
        if voice.observer is None and sending is None:
            return
        events = write.events(result)
        if not events:
            return
        if voice.observer is not None:
            access.after_commit(partial(_tell, voice.observer, events), witness)
        if sending is not None:
            only = events[0].fields["job_id"] if len(events) == 1 else None
            access.after_commit(partial(sending.end, only), witness)


def _tell(observer: Observer, events: Sequence[Event]) -> None:
    for each in events:
        observer.observe(each)


def _store_of(address: Address) -> Store:
    """Return the store's meaning; it needs no driver."""
    if address.dialect == "postgresql":
        from holdfast.storage.postgres.store import PostgresStore

        return PostgresStore()
    from holdfast.storage.sqlite.store import SqliteStore

    return SqliteStore()
