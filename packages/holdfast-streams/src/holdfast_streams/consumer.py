"""Consumers: handlers whose rows and position commit together, so that each event counts once in this database.

A block that fails is tried again with backoff, then in halves down to single events, so that only what fails by itself
is parked. With `order="key"`, later events of a parked event's key are held behind it, and taken in order once it was
tried again or skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from holdfast.core.errors import (
    ConnectionClosed,
    DatabaseError,
    DatabaseUnreachable,
    HoldfastError,
    words_of,
)
from holdfast.core.events import EventSpec
from holdfast.core.instants import Instant
from holdfast.core.records import Held
from holdfast.core.redaction import clean_error
from holdfast.core.retry import Retry
from holdfast.storage.database import Database
from holdfast.storage.operation import Op, run, run_async
from holdfast.storage.store.params import resolve_now
from holdfast.worker.clock import Clock
from holdfast.worker.handler_threads import HandlerThreads
from holdfast.worker.handler_transactions import write_last
from holdfast_streams.delivery import DIED, RetryLater, check_lease, wait_for_data
from holdfast_streams.errors import LineLost
from holdfast_streams.events import STREAM_CONSUMED, STREAM_PARKED, STREAM_RETRIED
from holdfast_streams.line_reader import HeldLine
from holdfast_streams.reader_store import LINES, READERS, ReadBlock, ReaderKind
from holdfast_streams.stream_event import EventDecoder, StreamEvent, UnreadableEvent, has_large

CONSUMER_RETRY = Retry(base="1s", cap="60s", max_attempts=3)
"""How often a block is tried as a whole before its events are tried by halves."""

IDLE_MS = 10_000
"""So long a transaction of the application's own may be silent between the position and its commit."""

LAST_TRIES = 2
"""How often a single event is tried before it is parked."""

DEATHS_PER_TRY = 4
"""An event may end so many processes for each of the tries that it has."""

ConsumerOrder = Literal["key"]
Events = Sequence[StreamEvent[Any] | UnreadableEvent]


@dataclass(frozen=True, slots=True)
class Consumer:
    """A declared consumer: its handler, and how it is called."""

    name: str
    patterns: tuple[str, ...]
    handler: Callable[..., Any]
    batch: int
    is_single: bool
    is_async: bool
    data_type: Any
    order: ConsumerOrder | None = None
    since: Instant | None = None
    since_ms_ago: int | None = None
    retry: Retry = CONSUMER_RETRY
    begin: Callable[[], Any] | None = None


class HandlerFailed(Exception):
    """A handler raised; what it wrote was rolled back."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(clean_error(type(error).__name__, words_of(error)))


@dataclass(frozen=True, slots=True)
class ConsumerDelivery:
    """Takes blocks for a consumer. See `delivery.BlockDelivery`."""

    consumer: Consumer
    database: Database
    decoder: EventDecoder
    threads: HandlerThreads
    clock: Clock
    emit: Callable[[EventSpec, dict[str, Any]], None]
    now: Callable[[], Instant | None] = lambda: None

    kind: ReaderKind = "consumer"
    target: str | None = None
    look_s: float | None = None

    @property
    def name(self) -> str:
        return self.consumer.name

    @property
    def patterns(self) -> Sequence[str]:
        return self.consumer.patterns

    @property
    def batch(self) -> int:
        return self.consumer.batch

    def begins_at(self) -> Op[Instant | None]:
        if self.consumer.since_ms_ago is None:
            return self.consumer.since
        return (yield from resolve_now(self.now())) - self.consumer.since_ms_ago * 1000

    async def prepare(self, held: HeldLine) -> None:
        """Nothing has to be prepared: the position is in the database."""

    async def close(self) -> None:
        """Nothing is open."""

    async def deliver(self, held: HeldLine, block: ReadBlock) -> None:
        assert block.upto is not None
        if block.text is None:
            await self._advance(held, block.upto)
            return
        events = await self._decode(held, block.text)
        parked = set(block.parked_keys) if self.consumer.order == "key" else set()
        try:
            await self._take(held, events, block.upto, parked)
        except HandlerFailed as failure:
            await self._note_failure(held, len(events), str(failure))
            await self._take_halves(held, events, block.upto, parked)

    @property
    def max_deaths(self) -> int | None:
        tries = self.consumer.retry.max_attempts
        return None if tries is None else DEATHS_PER_TRY * tries

    async def give_up(self, held: HeldLine, block: ReadBlock, error: str) -> None:
        assert block.upto is not None
        (event,) = await self._decode(held, block.text or "")
        last = self._last(held, block.upto, failed={event.place: error}, attempts=held.failures)
        await self.database.run_async(last)
        held.move(block.upto)
        self._note_parked(held, event, error, set())

    async def _decode(self, held: HeldLine, text: str) -> Events:
        """Read the events of a block. Raises: RetryLater while data of theirs in files is out of reach, LineLost."""
        try:
            if has_large(text):
                return await asyncio.to_thread(self.decoder.decode, text)
            return self.decoder.decode(text)
        except HoldfastError as error:
            delay_ms = self.consumer.retry.delay_ms(1, self.clock.random())
            await wait_for_data(self.database, held, error, delay_ms, self.now())

    async def _note_failure(self, held: HeldLine, events: int, error: str) -> None:
        """Count a failure; the block is tried again unless it has failed often enough. Raises: RetryLater, LineLost."""
        policy = self.consumer.retry
        # What raises does not end processes: it has the tries that it would have had without those.
        failures = 1 if held.careful else held.failures + 1
        held.careful = 0
        delay_ms = policy.delay_ms(failures, self.clock.random())
        fail = LINES.fail(held.token, failures, error, delay_ms, self.now())
        if not await self.database.run_async(fail):
            raise LineLost(f"{held.mark} is read by another process")
        held.failures = failures
        if policy.max_attempts is not None and failures >= policy.max_attempts:
            return
        self._emit(STREAM_RETRIED, held, events=events, error=error, delay_ms=delay_ms)
        raise RetryLater(delay_ms / 1000)

    async def _take_halves(
        self, held: HeldLine, events: Events, upto: int, parked: set[str]
    ) -> None:
        """Take events that failed together in two halves, and so on, so that only what fails alone is parked."""
        if len(events) == 1:
            await self._take_alone(held, events[0], upto, parked)
            return
        middle = len(events) // 2
        for half, end in ((events[:middle], events[middle - 1].place), (events[middle:], upto)):
            try:
                await self._take(held, half, end, parked)
            except HandlerFailed:
                await self._take_halves(held, half, end, parked)

    async def _take_alone(
        self, held: HeldLine, event: StreamEvent[Any] | UnreadableEvent, upto: int, parked: set[str]
    ) -> None:
        failure = ""
        for attempt in range(1, LAST_TRIES + 1):
            try:
                await self._take(held, [event], upto, parked)
                return
            except HandlerFailed as error:
                failure = str(error)
            delay_s = self.consumer.retry.delay_ms(attempt) / 1000
            if attempt < LAST_TRIES and await self.clock.wait(held.ended, delay_s):
                raise RetryLater(0)
        attempts = (self.consumer.retry.max_attempts or 0) + LAST_TRIES
        last = self._last(held, upto, failed={event.place: failure}, attempts=attempts)
        await self.database.run_async(last)
        held.move(upto)
        self._note_parked(held, event, failure, parked)

    def _note_parked(
        self,
        held: HeldLine,
        event: StreamEvent[Any] | UnreadableEvent,
        error: str,
        parked: set[str],
    ) -> None:
        if self.consumer.order == "key" and event.key is not None:
            parked.add(event.key)
        self._emit(STREAM_PARKED, held, event_name=event.name, id=event.id, error=error)

    async def _take(self, held: HeldLine, events: Events, upto: int, parked: set[str]) -> None:
        """Call the handler and move the position, in one transaction. Raises: HandlerFailed, LineLost."""
        good = [each for each in events if isinstance(each, StreamEvent)]
        behind: list[int] = []
        unreadable: list[UnreadableEvent] = []
        if parked or len(good) < len(events):
            good, behind, unreadable = self._sort_out(events, parked)
        failed = {each.place: each.error for each in unreadable}
        last = self._last(held, upto, behind, failed, attempts=1)
        if good:
            await self._call(held, good, last)
        else:
            await self.database.run_async(last)
        held.move(upto)
        for one in unreadable:
            self._note_parked(held, one, one.error, parked)

    def _sort_out(
        self, events: Events, parked: set[str]
    ) -> tuple[list[StreamEvent[Any]], list[int], list[UnreadableEvent]]:
        """Return the events for the handler, the places of those behind a parked one, and those to be parked."""
        good, behind, unreadable = list[StreamEvent[Any]](), list[int](), list[UnreadableEvent]()
        keys = set(parked)
        for each in events:
            if each.key is not None and each.key in keys:
                behind.append(each.place)
            elif isinstance(each, UnreadableEvent):
                unreadable.append(each)
                if self.consumer.order == "key" and each.key is not None:
                    keys.add(each.key)
            else:
                good.append(each)
        return good, behind, unreadable

    def _last(
        self,
        held: HeldLine,
        upto: int,
        behind: Sequence[int] = (),
        failed: dict[int, str] | None = None,
        attempts: int = 0,
    ) -> Op[None]:
        """Move the position and park what is to be parked: the last statements of a transaction. Raises: LineLost."""
        # First, since what a lost answer hid has been parked already.
        if not (yield from LINES.advance(held.token, held.position, upto, held.server)):
            raise LineLost(f"{held.mark} is read by another process")
        for place, error in (failed or {}).items():
            yield from LINES.park(held.token, "failed", [place], error, attempts, self.now())
        if behind:
            yield from LINES.park(held.token, "held", behind, now=self.now())

    async def _advance(self, held: HeldLine, upto: int) -> None:
        """Move past events that the consumer does not want."""
        await self.database.run_async(self._last(held, upto))
        held.move(upto)

    async def take_due(self, held: HeldLine) -> None:
        while not held.ended.is_set():
            text = await self.database.run_async(LINES.first_due(held.token))
            if text is None:
                return
            (event,) = await self._decode(held, text)
            key = event.key if self.consumer.order == "key" else None
            if (error := await self._take_due(held, event, key)) is not None:
                again = LINES.park_again(held.token, event.place, error, key, now=self.now())
                await self.database.run_async(again)
                self._emit(STREAM_PARKED, held, event_name=event.name, id=event.id, error=error)

    async def _take_due(
        self, held: HeldLine, event: StreamEvent[Any] | UnreadableEvent, key: str | None
    ) -> str | None:
        """Take a parked event, which has failed until it was taken: a process may die of it. Return why it failed."""
        begin = LINES.park_again(held.token, event.place, DIED, key, 1, self.now())
        await self.database.run_async(begin)
        if isinstance(event, UnreadableEvent):
            return event.error
        try:
            await self._call(held, [event], self._unpark(held, event.place, key))
        except HandlerFailed as failure:
            return str(failure)
        except (RetryLater, LineLost, DatabaseError, ConnectionClosed):
            with suppress(DatabaseError, ConnectionClosed):
                await self.database.run_async(READERS.retry_parked(self.name, [event.id]))
            raise
        return None

    def _unpark(self, held: HeldLine, place: int, key: str | None) -> Op[None]:
        if not (yield from LINES.unpark(held.token, place, key)):
            raise LineLost(f"{held.mark} is read by another process, or the event was skipped")

    async def _call(
        self, held: HeldLine, events: Sequence[StreamEvent[Any]], last: Op[None]
    ) -> None:
        check_lease(held, self.clock)
        began = self.clock.monotonic()
        if self.consumer.is_async:
            await self._run_async(held, events, last)
        else:
            await self.threads.run(self._run_sync, held, events, last)
        run_ms = int((self.clock.monotonic() - began) * 1000)
        self._emit(STREAM_CONSUMED, held, events=len(events), run_ms=run_ms)

    def _run_sync(self, held: HeldLine, events: Sequence[StreamEvent[Any]], last: Op[None]) -> None:
        begin = self.consumer.begin
        opening = begin() if begin else self.database.transaction(self._held(held))
        with failing_for_handler(), opening as tx:
            try:
                if self.consumer.is_single:
                    for each in events:
                        self.consumer.handler(each, tx)
                else:
                    self.consumer.handler(events, tx)
            except Exception as error:
                raise_failure(error)
            write_last(self.database, tx, self._guard(last)) if begin else run(last, tx)

    async def _run_async(
        self, held: HeldLine, events: Sequence[StreamEvent[Any]], last: Op[None]
    ) -> None:
        begin = self.consumer.begin
        opening = begin() if begin else self.database.transaction_async(self._held(held))
        with failing_for_handler():
            async with opening as tx:
                try:
                    if self.consumer.is_single:
                        for each in events:
                            await self.consumer.handler(each, tx)
                    else:
                        await self.consumer.handler(events, tx)
                except Exception as error:
                    raise_failure(error)
                own = write_last(self.database, tx, self._guard(last)) if begin else None
                await (own or run_async(last, tx))

    def _guard(self, last: Op[None]) -> Op[None]:
        """In a transaction of the application's own: one that falls silent from here on keeps nobody from the line."""
        yield from self.database.store.leases.guard(IDLE_MS)
        yield from last

    def _held(self, held: HeldLine) -> Held:
        return Held(held.mark, held.token.token)

    def _emit(self, spec: EventSpec, held: HeldLine, **fields: Any) -> None:
        self.emit(spec, {"reader": self.name, "line": held.line, **fields})


@contextmanager
def failing_for_handler() -> Iterator[None]:
    """Have what a transaction ends with be its handler's failure, too: a constraint that only the commit checks, an
    error that the handler has caught, a transaction that it has ended itself.

    What is wrong with the database or the lease is not.
    Raises: HandlerFailed, LineLost, DatabaseError, ConnectionClosed.
    """
    try:
        yield
    except (HandlerFailed, LineLost, DatabaseError, ConnectionClosed):
        raise
    except Exception as error:
        raise_failure(error)


def raise_failure(error: Exception) -> NoReturn:
    """Raise what a handler's error means: that of a lost connection is not the handler's. Raises: HandlerFailed."""
    from holdfast.storage.postgres.store import translate

    ours = translate(error)
    if isinstance(ours, DatabaseUnreachable | ConnectionClosed):
        raise ours from error
    raise HandlerFailed(error) from error
