"""Runs commands on the caller's transaction, sync or async, and reads on the caller's connection or one of ours.

What follows from a command (hints, events, spans) leaves after the commit and never before.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import msgspec

from holdfast.client.adapters import adapter_of
from holdfast.client.adapters.base import Access, AsyncAdapter, AsyncTx, Need, SyncAdapter, SyncTx
from holdfast.commands.change import Change
from holdfast.core.errors import HoldfastError, SchemaTooOld, UnsupportedConnection, WrongDatabase
from holdfast.core.events import Event, Observer
from holdfast.core.instants import Instant
from holdfast.core.sealing import Sealer
from holdfast.notify.base import Hint, Notifier
from holdfast.notify.encoding import encode
from holdfast.notify.sender import BufferedNotifier
from holdfast.observe.context import parking, refuse_while_parking
from holdfast.storage.after_commit import Action, Notification, NotifyAction
from holdfast.storage.database import AsyncTransaction, Database, Raised, Transaction
from holdfast.storage.migrations import check_schema, load_migrations
from holdfast.storage.operation import Op, at, run, run_async
from holdfast.storage.store import Store
from holdfast.storage.url import Address

if TYPE_CHECKING:
    from opentelemetry.context import Context

T = TypeVar("T")

log = logging.getLogger("holdfast.client")

Trace: TypeAlias = Callable[[str], str | None]
"""Returns the W3C trace context to store with new jobs of a type."""

_PACKAGES = {"postgresql": "holdfast.storage.postgres", "sqlite": "holdfast.storage.sqlite"}


class Conditions(msgspec.Struct, frozen=True):
    """What a command needs to know of the transaction it runs in.

    `channel` is where hints go within the transaction, set where its commit cannot be observed; `trace` gives new jobs
    their trace, `capture` their context; without observers no command need describe `events`; `sealer` opens payloads.
    """

    channel: str | None = None
    trace: Trace | None = None
    has_observers: bool = True
    sealer: Sealer | None = None
    capture: Callable[[], str | None] | None = None


ClientCommand: TypeAlias = Callable[[Store, Conditions], Op[Change[T]]]


class Outputs(msgspec.Struct):
    """Where a producer sends hints, events and spans after a commit."""

    sender: HintSender | None = None
    channel: str | None = None
    observer: Observer | None = None
    begin_spans: Callable[[], SendSpans] | None = None
    capture: Callable[[], str | None] | None = None


class Client:
    """Runs commands and reads. Creating one opens no connection."""

    def __init__(
        self,
        address: Address,
        schema: str,
        database: Callable[[], Database],
        outputs: Outputs,
        instant: Callable[[], Instant | None] = lambda: None,
        how_to_migrate: Callable[[], str | None] = lambda: None,
        sealer: Sealer | None = None,
    ) -> None:
        """`how_to_migrate` returns the advice of errors about tables that are missing or old."""
        self.store = _store_of(address)
        self._how_to_migrate = how_to_migrate
        self.sealer = sealer
        self._instant = instant
        self._dialect = address.dialect
        self._database = database
        self._outputs = outputs
        self._schema_is_known = False
        self._to_read = Need(self.store, schema, writes=False)
        self._to_write = Need(self.store, schema, writes=True)

    def write(self, tx: Any, command: ClientCommand[T]) -> T:
        """Run a command on the caller's transaction and return its answer; with an async one, an awaitable of it."""
        if parking:
            refuse_while_parking()
        adapter = adapter_of(tx)
        if isinstance(adapter, AsyncAdapter):
            # What `in_transaction` says of the methods that end here.
            return self._write_async(adapter, command)  # type: ignore[return-value]
        return self._write(adapter, command)

    def read(self, op: Op[T], tx: SyncTx | None = None) -> T:
        """Read, on the caller's connection or one of ours."""
        if tx is None:
            return self._database().read(op)
        adapter = adapter_of(tx)
        if isinstance(adapter, AsyncAdapter):
            raise UnsupportedConnection("the connection is async", help="use app.aio and await it")
        access = adapter.open(self._to_read)
        return run(self._check_schema(op), access.executor)

    async def read_async(self, op: Op[T], tx: AsyncTx | None = None) -> T:
        """Async version of `read`."""
        if tx is None:
            return await self._database().read_async(op)
        adapter = adapter_of(tx)
        if isinstance(adapter, SyncAdapter):
            raise UnsupportedConnection("the connection is sync", help="remove .aio")
        access = await adapter.open(self._to_read)
        return await run_async(self._check_schema(op), access.executor)

    def _write(self, adapter: SyncAdapter, command: ClientCommand[T]) -> T:
        access = adapter.open(self._to_write)
        spans = self._begin_spans(access)
        op = self._with_hints(command, self._conditions(access, spans))
        change = run(self._check_schema(op), access.executor)
        self._announce(access, change, spans)
        return change.answer

    async def _write_async(self, adapter: AsyncAdapter, command: ClientCommand[T]) -> T:
        access = await adapter.open(self._to_write)
        spans = self._begin_spans(access)
        op = self._with_hints(command, self._conditions(access, spans))
        change = await run_async(self._check_schema(op), access.executor)
        self._announce(access, change, spans)
        return change.answer

    def _check_schema(self, op: Op[T]) -> Op[T]:
        """Check the schema before the first operation of this process."""
        # Only tests set the time; otherwise it is the database's clock.
        instant = self._instant()
        if instant is not None:
            op = at(op, instant)
        return op if self._schema_is_known else self._first(op)

    def _first(self, op: Op[T]) -> Op[T]:
        try:
            applied = yield from self.store.schema.applied()
            check_schema(load_migrations(_PACKAGES[self._dialect]), applied)
        except (SchemaTooOld, WrongDatabase) as error:
            raise self._not_migrated(error) from error
        self._schema_is_known = True
        return (yield from op)

    def _not_migrated(self, error: SchemaTooOld | WrongDatabase) -> SchemaTooOld | WrongDatabase:
        """Name the database, and the command that migrates this one and no other."""
        message = f"{error.message} ({self._database().url})"
        return type(error)(message, help=self._how_to_migrate())

    def _with_hints(self, command: ClientCommand[T], conditions: Conditions) -> Op[Change[T]]:
        """Send the hints within the transaction where its commit cannot be observed."""
        op = command(self.store, conditions)
        return op if conditions.channel is None else self._notify(op, conditions.channel)

    def _notify(self, op: Op[Change[T]], channel: str) -> Op[Change[T]]:
        change = yield from op
        if change.hints:
            yield from self.store.schema.notify(channel, encode(change.hints))
        return change

    def _begin_spans(self, access: Access[Any]) -> SendSpans | None:
        """Begin the send spans, where this process traces and the commit can be observed."""
        begin = self._outputs.begin_spans
        return None if begin is None or access.after_commit is None else begin()

    def _conditions(self, access: Access[Any], spans: SendSpans | None) -> Conditions:
        outputs = self._outputs
        channel = outputs.channel if access.after_commit is None else None
        trace = ambient_trace() if spans is None else spans.trace
        has_observers = outputs.observer is not None or spans is not None
        return Conditions(channel, trace, has_observers, self.sealer, outputs.capture)

    def _announce(self, access: Access[Any], change: Change[T], spans: SendSpans | None) -> None:
        """Have hints, events and spans sent after the commit."""
        if access.after_commit is None:
            return
        outputs = self._outputs
        if change.hints and outputs.sender is not None:
            send = SendHints(outputs.sender, tuple(change.hints), outputs.channel)
            access.after_commit(send, change.witness)
        events = change.events
        if not events:
            return
        if outputs.observer is not None:
            access.after_commit(partial(_emit, outputs.observer, events), change.witness)
        if spans is not None:
            only = events[0].fields.get("job_id") if len(events) == 1 else None
            access.after_commit(partial(spans.end, only), change.witness)


class Resource:
    """The base of `app.jobs`, `app.chains` and the others: commands and reads through one client."""

    def __init__(self, client: Client) -> None:
        self._client = client


def _emit(observer: Observer, events: Sequence[Event]) -> None:
    for each in events:
        observer.observe(each)


def _store_of(address: Address) -> Store:
    """Return the store of a dialect; it needs no driver."""
    if address.dialect == "postgresql":
        from holdfast.storage.postgres.store import PostgresStore

        return PostgresStore()
    from holdfast.storage.sqlite.store import SqliteStore

    return SqliteStore()


class TransactionScope:
    """A transaction of our own, for `with` and `async with`; leaving the block commits, an exception rolls back."""

    def __init__(self, database: Callable[[], Database]) -> None:
        self._database = database
        self._sync: AbstractContextManager[Transaction] | None = None
        self._async: AbstractAsyncContextManager[AsyncTransaction] | None = None

    def __enter__(self) -> Transaction:
        self._sync = self._database().transaction()
        return self._sync.__enter__()

    def __exit__(self, *raised: *Raised) -> bool | None:
        assert self._sync is not None
        return self._sync.__exit__(*raised)

    async def __aenter__(self) -> AsyncTransaction:
        self._async = self._database().transaction_async()
        return await self._async.__aenter__()

    async def __aexit__(self, *raised: *Raised) -> bool | None:
        assert self._async is not None
        return await self._async.__aexit__(*raised)


class HintSender:
    """Hands hints to the notifier, which is created with the first of them."""

    def __init__(self, notifier: Callable[[], Notifier]) -> None:
        self._notifier = notifier
        self._is_reported = False
        self._gathered: ContextVar[dict[Hint, None] | None] = ContextVar(
            "holdfast_hints", default=None
        )

    def send(self, hints: Iterable[Hint]) -> None:
        """Send what a commit has changed; never waits and never raises."""
        gathered = self._gathered.get()
        if gathered is not None:
            gathered.update(dict.fromkeys(hints))
        elif (notifier := self._open_notifier()) is not None:
            notifier.send(list(hints))

    def take_turn(self) -> list[Hint] | None:
        """Have a commit take its hints along, and return others for it; None if they wait, or go another way."""
        notifier = self._open_notifier() if self._gathered.get() is None else None
        return notifier.take_turn() if isinstance(notifier, BufferedNotifier) else None

    def _open_notifier(self) -> Notifier | None:
        try:
            return self._notifier()
        except HoldfastError as error:
            # The work is committed: raising now would make the caller do it again.
            if not self._is_reported:
                self._is_reported = True
                log.error("hints cannot be sent; workers will find jobs by polling: %s", error)
            return None

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Hold hints back until the block ends, however many transactions commit in it; blocks may be nested."""
        outer = self._gathered.get()
        if outer is not None:
            yield
            return
        token = self._gathered.set({})
        try:
            yield
        finally:
            gathered = self._gathered.get()
            self._gathered.reset(token)
            if gathered:
                self.send(gathered)


class SendHints(NotifyAction, frozen=True):
    """Sends hints when called, after a commit; equal ones need sending only once. A channel is of the same server."""

    sender: HintSender
    hints: tuple[Hint, ...]
    channel: str | None = None

    def __call__(self) -> None:
        """Send them."""
        self.sender.send(self.hints)

    def take_notifications(self) -> tuple[list[Notification], Action]:
        """Return them for the commit to take along, with those that wait, if they may leave at once."""
        others = None if self.channel is None else self.sender.take_turn()
        if self.channel is None or others is None:
            return [], self
        payloads = encode(list(dict.fromkeys([*others, *self.hints])))
        return [(self.channel, each) for each in payloads], partial(self.sender.send, others)


class SendSpans(Protocol):
    """The spans of one command, one per job type or event; after a rollback they never end."""

    def trace(self, type: str) -> str | None:
        """Begin the span of a type; return the context to store with its jobs."""

    def end(self, job_id: str | None) -> None:
        """End the spans after the commit; `job_id` is the job if there was only one."""


def ambient_trace() -> Trace | None:
    """Return the trace context of the caller's current span, or None without OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    traceparent = current_traceparent()
    return lambda type: traceparent


def current_traceparent(context: Context | None = None) -> str | None:
    """Return the current span, or that of an OpenTelemetry context, as a W3C traceparent; None outside of one."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, context)
    return carrier.get("traceparent")
