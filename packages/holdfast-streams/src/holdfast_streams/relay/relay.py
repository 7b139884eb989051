"""Relays: events of the log are appended to a broker's stream, each once and in order per key.

resume  Where to go on is asked of the stream itself. What it has beyond the database's position was appended by a
        process that died before it could say so, and is taken over; what it lost is read from the log again.
append  A batch says which message it expects to be its line's last. The position moves afterwards, under the token.
ahead   If the stream has events that the log does not, the database was set back. The line waits for a rebase.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

from holdfast.core.errors import (
    ConnectionClosed,
    DatabaseError,
    HoldfastError,
    MissingExtra,
    words_of,
)
from holdfast.core.events import EventSpec
from holdfast.core.instants import Instant
from holdfast.core.redaction import clean_error
from holdfast.core.retry import Retry
from holdfast.storage.database import Database
from holdfast.storage.operation import Op
from holdfast.worker.clock import Clock
from holdfast_streams.brokers import FastStreamTarget, JetStream, RedisStream, RelayTarget
from holdfast_streams.consumer import ConsumerOrder
from holdfast_streams.delivery import DIED, RetryLater, wait_for_data
from holdfast_streams.errors import (
    BrokerAway,
    EventRefused,
    LineLost,
    SecondWriter,
    StreamAhead,
    StreamUnfit,
)
from holdfast_streams.events import STREAM_BLOCKED, STREAM_CONSUMED, STREAM_PARKED, STREAM_REFILLED
from holdfast_streams.line_reader import HeldLine
from holdfast_streams.reader_store import LINES, READERS, ReadBlock, ReaderKind, resolve_since
from holdfast_streams.relay.cloud_events import Encode, EventEncoder, RawEvent, decode_block
from holdfast_streams.relay.relay_store import RELAYS, RelayLine, Sent, sent_at
from holdfast_streams.relay.sink import (
    BlockedState,
    LineEnd,
    OutgoingMessage,
    Position,
    Sink,
    Stored,
)
from holdfast_streams.stream_event import has_large, is_away

T = TypeVar("T")

RELAY_RETRY = Retry(base="250ms", cap="5s")
"""How soon a line that waits for its broker is tried again."""

LOOK_S = 15.0
"""How often a line without new events asks its stream whether all is still there."""

MAX_BATCH_BYTES = 8 * 1024 * 1024
PAGE = 200
NAMED = 3
"""How many of the events are named that only the stream has."""

MAX_RETRIED = 100

MAX_DEATHS = 12
"""How often an event is begun alone with which processes end: the user's `encode` may do that."""

_EXTRAS: dict[type, tuple[str, str, str]] = {
    JetStream: ("nats", "NATS", "nats-py"),
    RedisStream: ("redis", "Redis", "redis-py"),
    FastStreamTarget: ("faststream", "FastStream", "faststream"),
}


@dataclass(frozen=True, slots=True)
class Relay:
    """A declared relay: which events go where, and how."""

    name: str
    patterns: tuple[str, ...]
    to: RelayTarget
    batch: int
    order: ConsumerOrder | None
    is_raw: bool
    encode: Encode | None
    content_type: str
    source: str
    subject: str | None
    since: Instant | None = None
    since_ms_ago: int | None = None

    @property
    def refuses_unkeyed(self) -> str | None:
        """Why an event without a key cannot be sent, if it can't."""
        if self.subject is not None and "{key}" in self.subject:
            return "the event has no key, and the relay's subject has one: publish it with key="
        if self.order == "key":
            return (
                "the event has no key, and the relay keeps the order of keys: "
                "publish it with key=, or declare the relay with order=None"
            )
        return None

    @property
    def target(self) -> str:
        """Where events go, for people: without what opens it."""
        servers = [
            urlsplit(each if "://" in each else f"//{each}") for each in self.to.url.split(",")
        ]
        hosts = ",".join(each.netloc.rpartition("@")[2] for each in servers)
        return f"{self.to.stream} at {servers[0].scheme}://{hosts}{servers[0].path}"


def check_client(to: RelayTarget) -> None:
    """See that the client of a broker is installed. Raises: MissingExtra."""
    module, broker, package = _EXTRAS[type(to)]
    if find_spec(module) is None:
        raise MissingExtra(
            f"a relay to {broker} needs {package}", help=f'pip install "holdfast-streams[{module}]"'
        )


def open_sink(relay: Relay) -> Sink:
    """Return the sink of a relay, not yet connected."""
    if isinstance(relay.to, JetStream):
        from holdfast_streams.relay.jetstream_sink import JetStreamSink

        return JetStreamSink(relay.to, relay.subject)
    if isinstance(relay.to, FastStreamTarget):
        from holdfast_streams.relay.faststream_sink import FastStreamSink

        return FastStreamSink(relay.to)
    from holdfast_streams.relay.redis_sink import RedisSink

    return RedisSink(relay.to)


@dataclass(slots=True)
class _Line:
    """What is known of a line while it is held."""

    token: str
    epoch: int
    tail: LineEnd
    sent: Sent | None
    parked: set[int]
    look_at: float
    limit: int


@dataclass(slots=True)
class _Work:
    """What is to be done with a block, up to which place."""

    upto: int
    batch: list[OutgoingMessage] = field(default_factory=list)
    events: list[RawEvent] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)
    failed: list[tuple[RawEvent, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RelayDelivery:
    """Takes blocks for a relay. See `delivery.BlockDelivery`."""

    relay: Relay
    sink: Sink
    encoder: EventEncoder
    database: Database
    clock: Clock
    emit: Callable[[EventSpec, dict[str, Any]], None]
    now: Callable[[], Instant | None] = lambda: None

    kind: ReaderKind = "relay"
    look_s: float | None = LOOK_S
    max_deaths: int | None = MAX_DEATHS
    _lines: dict[int, _Line] = field(default_factory=dict)
    _blocked: dict[int, str] = field(default_factory=dict)
    _ahead: dict[int, tuple[LineEnd, RelayLine, StreamAhead]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.relay.name

    @property
    def patterns(self) -> Sequence[str]:
        return self.relay.patterns

    @property
    def batch(self) -> int:
        return self.relay.batch

    @property
    def target(self) -> str | None:
        return self.relay.target

    def begins_at(self) -> Op[Instant | None]:
        return resolve_since(self.relay.since_ms_ago, self.relay.since)

    async def close(self) -> None:
        await self.sink.close()

    # ---- Where to go on

    async def prepare(self, held: HeldLine) -> None:
        known = self._lines.get(held.line)
        if (
            known is not None
            and known.token == held.token.token
            and self.clock.monotonic() < known.look_at
        ):
            return
        facts = await self.database.run_async(RELAYS.line(held.token))
        if facts is None:
            raise LineLost(f"{held.mark} is read by another process")
        held.position = facts.position
        try:
            await self.sink.open(not facts.was_used or facts.blocked == "recreate")
            await self._resume(held, facts)
        except (BrokerAway, StreamUnfit) as error:
            await self._block(held, error)
        except StreamAhead as error:
            await self._block(held, error)

    async def _resume(self, held: HeldLine, facts: RelayLine) -> None:
        """Compare the stream with what is remembered of it, and go on from there. Raises: StreamAhead, LineLost."""
        tail, sent = await self.sink.resume(held.line), facts.last_sent()
        there = tail.position
        if there is not None and there.epoch >= facts.epoch:
            if there.epoch > facts.epoch:
                await self._name_ahead(held, facts, tail)
            elif sent is None or there > sent.position:
                sent = await self._take_over(held, facts, sent, tail)
            elif there < sent.position:
                sent = await self._refill(held, facts, sent, tail, there.place)
        elif sent is not None and (there is not None or sent.sequence >= tail.oldest):
            sent = await self._refill(held, facts, sent, tail, sent.base)
        # Else nothing was sent in this epoch, or the stream has removed all of it by its own limits.
        parked = await self.database.run_async(RELAYS.parked_places(held.token))
        self._lines[held.line] = _Line(
            held.token.token,
            facts.epoch,
            tail,
            sent,
            {place for place in parked if place > held.position},
            self.clock.monotonic() + LOOK_S * (0.75 + self.clock.random() / 2),
            self.relay.batch,
        )
        self._ahead.pop(held.line, None)
        if facts.blocked is not None or self._blocked.pop(held.line, None) is not None:
            await self.database.run_async(RELAYS.unblock(held.token))

    async def _take_over(
        self, held: HeldLine, facts: RelayLine, sent: Sent | None, tail: LineEnd
    ) -> Sent | None:
        """Take over what the stream has beyond what is remembered, if the log has it. Raises: StreamAhead, LineLost."""
        self._raise_known(held, facts, tail)
        assert tail.position is not None
        after = sent.position if sent is not None else Position(facts.epoch, facts.position)
        parked = await self.database.run_async(RELAYS.parked_places(held.token))
        own = {id: place for place, id in parked.items()}
        retried = list(sent.retried) if sent is not None else []
        agreed: set[str] = set()
        upto, alien = facts.position, list[Stored]()
        while not alien:
            page = await self.sink.read_after(held.line, after, PAGE)
            places = [each.position.place for each in page if not each.position.late]
            ids = await self.database.run_async(RELAYS.ids(held.line, places))
            for number, each in enumerate(page):
                epoch, place, late = each.position
                is_ours = place <= facts.position if late else ids.get(place) == each.id
                if epoch != facts.epoch or not is_ours:
                    alien = page[number:]
                    break
                if late and each.id in own:
                    retried.append((own[each.id], place, late))
                agreed.add(each.id)
                upto, after = max(upto, place), each.position
            if len(page) < PAGE:
                break
        base = facts.position if sent is None else sent.base
        if agreed:
            sent = Sent(*after, 0 if alien else tail.sequence, base, retried[-MAX_RETRIED:])
            await self.database.run_async(self._settle(held, facts.position, upto, agreed, sent))
            held.move(upto)
        if alien:
            self._raise_ahead(held, facts, tail, alien)
        return sent

    def _settle(
        self, held: HeldLine, start: int, upto: int, agreed: set[str], sent: Sent
    ) -> Op[None]:
        """Move past events that the stream has; those before them that it lacks are due. Raises: LineLost."""
        lacking: list[int] = []
        parked = yield from RELAYS.parked_places(held.token)
        after = start
        while after < upto:
            block = yield from LINES.read(held.token.reader, held.line, after, upto, PAGE)
            if block.upto is None:
                break
            lacking += [
                each.place
                for each in decode_block(block.text or "[]")
                if each.place <= upto and each.id not in agreed and each.place not in parked
            ]
            after = block.upto
        yield from self._move(held, start, upto, sent)
        yield from RELAYS.unpark(held.token, agreed)
        if lacking:
            yield from LINES.park(held.token, "held", lacking, now=self.now())

    def _move(
        self, held: HeldLine, start: int, end: int, sent: Sent | None, server: Instant | None = None
    ) -> Op[None]:
        if not (yield from RELAYS.move(held.token, start, end, sent, server)):
            raise LineLost(f"{held.mark} is read by another process")

    async def _refill(
        self, held: HeldLine, facts: RelayLine, sent: Sent, tail: LineEnd, start: int
    ) -> Sent | None:
        """Set the line back to where its stream ends: what that lost is sent again from the log. Raises: LineLost."""
        there = tail.position
        kept = None
        if there is not None and there.epoch == facts.epoch:
            known = [each for each in sent.retried if each[1:] <= there[1:]]
            kept = sent_at(tail, sent.base, known)
        # Late ones were sent under a later place than their own, so they are not read again.
        lost = [
            own
            for own, *at in sent.retried
            if own <= start and (there is None or tuple(at) > there[1:])
        ]

        def set_back() -> Op[tuple[int, int | None]]:
            found = yield from RELAYS.range_of(held.line, start, facts.position)
            yield from self._move(held, facts.position, start, kept)
            if lost:
                yield from LINES.park(held.token, "held", lost, now=self.now())
            return found

        count, first = await self.database.run_async(set_back())
        held.move(start)
        gone = facts.position - start if first is None else max(0, first - start - 1)
        self._emit(STREAM_REFILLED, held, events=count + len(lost), gone=gone)
        return kept

    # ---- Ahead

    async def _name_ahead(self, held: HeldLine, facts: RelayLine, tail: LineEnd) -> NoReturn:
        """Say which events a stream of a later epoch has. Raises: StreamAhead."""
        assert tail.position is not None
        self._raise_known(held, facts, tail)
        await self.database.run_async(RELAYS.raise_epoch(self.name, tail.position.epoch))
        after = Position(facts.epoch, facts.position)
        found = await self.sink.read_after(held.line, after, PAGE)
        self._raise_ahead(held, facts, tail, found)

    def _raise_known(self, held: HeldLine, facts: RelayLine, tail: LineEnd) -> None:
        """Raise what was found before, if nothing has changed since."""
        known = self._ahead.get(held.line)
        if known is not None and known[0] == tail and known[1].epoch == facts.epoch:
            raise known[2].with_traceback(None)

    def _raise_ahead(
        self, held: HeldLine, facts: RelayLine, tail: LineEnd, alien: Sequence[Stored]
    ) -> NoReturn:
        assert tail.position is not None
        named = ", ".join(
            f"{each.event} {each.id} at place {each.position.place}" for each in alien[:NAMED]
        )
        more = f" and others up to place {tail.position.place}" if len(alien) > NAMED else ""
        error = StreamAhead(f"the stream has events that this database does not: {named}{more}")
        self._ahead[held.line] = tail, facts, error
        raise error

    async def _block(
        self, held: HeldLine, error: BrokerAway | StreamUnfit | StreamAhead
    ) -> NoReturn:
        """Note why the line waits. Raises: RetryLater, LineLost."""
        self._lines.pop(held.line, None)
        state: BlockedState = "ahead" if isinstance(error, StreamAhead) else error.state  # type: ignore[assignment]
        delay_ms = RELAY_RETRY.delay_ms(min(held.failures + 1, 10), self.clock.random())
        words = clean_error("", str(error)).removeprefix(": ")
        failures = await self.database.run_async(
            RELAYS.block(held.token, state, words, delay_ms, self.now())
        )
        if failures is None:
            raise LineLost(f"{held.mark} is read by another process")
        held.failures = failures
        if self._blocked.get(held.line) != state:
            self._blocked[held.line] = state
            self._emit(STREAM_BLOCKED, held, state=state, error=words)
        raise RetryLater(delay_ms / 1000)

    # ---- Appending

    async def give_up(self, held: HeldLine, block: ReadBlock, error: str) -> None:
        line = self._known(held)
        assert block.upto is not None
        failed = [(each, error) for each in decode_block(block.text or "[]")]
        work = _Work(block.upto, failed=failed)
        await self.database.run_async(self._last(held, work, line.sent, held.failures))
        held.move(block.upto)
        for event, words in failed:
            self._emit(STREAM_PARKED, held, event_name=event.name, id=event.id, error=words)

    def _known(self, held: HeldLine) -> _Line:
        """Return what was prepared. Raises: RetryLater when a task that has lost the line has cleared it."""
        known = self._lines.get(held.line)
        if known is None or known.token != held.token.token:
            raise RetryLater(0)
        return known

    async def deliver(self, held: HeldLine, block: ReadBlock) -> None:
        line = self._known(held)
        began = self.clock.monotonic()
        work = await self._read(held, block.text, self._sort, line, block)
        try:
            tail = await self._append(held, line, work.batch)
        except EventRefused as error:
            if len(work.batch) > 1:
                # Half of it then, and so on until it is known which one that is.
                line.limit = len(work.batch) // 2
                return
            work.failed.append((work.events[0], str(error)))
            work.batch.clear()
            tail = line.tail
        line.limit = self.relay.batch
        sent = self._sent(line, held.position, tail) if work.batch else line.sent
        await self.database.run_async(self._last(held, work, sent))
        held.move(work.upto)
        line.tail, line.sent = tail, sent
        for event, words in work.failed:
            self._emit(STREAM_PARKED, held, event_name=event.name, id=event.id, error=words)
        if work.batch:
            run_ms = int((self.clock.monotonic() - began) * 1000)
            self._emit(STREAM_CONSUMED, held, events=len(work.batch), run_ms=run_ms)

    async def _read(
        self, held: HeldLine, text: str | None, make: Callable[..., T], *arguments: Any
    ) -> T:
        """Make messages of events, whose data may be in files. Raises: RetryLater while those are away, LineLost."""
        try:
            if has_large(text or ""):
                return await asyncio.to_thread(make, held.line, *arguments)
            return make(held.line, *arguments)
        except HoldfastError as error:
            delay_ms = RELAY_RETRY.delay_ms(1, self.clock.random())
            await wait_for_data(self.database, held, error, delay_ms, self.now())

    def _sort(self, number: int, line: _Line, block: ReadBlock) -> _Work:
        """Sort a block into what is sent, what waits behind a parked event of its key, and what cannot be sent."""
        assert block.upto is not None
        parked = set(block.parked_keys) if self.relay.order == "key" else set()
        work, size = _Work(block.upto), 0
        for event in decode_block(block.text or "[]"):
            if event.place in line.parked:
                continue
            if event.key is not None and event.key in parked:
                work.behind.append(event.place)
                continue
            message, error = self._encode(number, event, Position(line.epoch, event.place))
            if message is None:
                work.failed.append((event, error))
                if self.relay.order == "key" and event.key is not None:
                    parked.add(event.key)
                continue
            size += len(message.data)
            if work.batch and (len(work.batch) >= line.limit or size > MAX_BATCH_BYTES):
                # The rest is read again.
                work.upto = event.place - 1
                break
            work.batch.append(message)
            work.events.append(event)
        return work

    def _encode(
        self, line: int, event: RawEvent, position: Position
    ) -> tuple[OutgoingMessage | None, str]:
        """Make a message of an event, or say why it cannot be one. Raises: HoldfastError while its data is away."""
        if event.key is None and (missing := self.relay.refuses_unkeyed) is not None:
            return None, missing
        try:
            message = self.encoder.message(event, position)
        except Exception as error:
            if is_away(error):
                raise
            return None, clean_error(type(error).__name__, words_of(error))
        refusal = self.sink.refusal(line, message)
        return (message, "") if refusal is None else (None, refusal)

    async def _append(
        self, held: HeldLine, line: _Line, batch: Sequence[OutgoingMessage]
    ) -> LineEnd:
        """Append a batch. Raises: EventRefused, LineLost when another has written, RetryLater for a broker's sake."""
        if not batch:
            return line.tail
        try:
            return await self.sink.append(held.line, line.tail, batch)
        except SecondWriter as error:
            self._lines.pop(held.line, None)
            raise LineLost(str(error)) from error
        except (BrokerAway, StreamUnfit) as error:
            await self._block(held, error)

    def _sent(self, line: _Line, start: int, tail: LineEnd) -> Sent:
        if line.sent is None:
            return sent_at(tail, start, ())
        return sent_at(tail, line.sent.base, line.sent.retried)

    def _last(self, held: HeldLine, work: _Work, sent: Sent | None, attempts: int = 1) -> Op[None]:
        """Move the position and park what is to be parked. Raises: LineLost."""
        # First, since what a lost answer hid has been parked already.
        yield from self._move(held, held.position, work.upto, sent, held.server)
        for event, error in work.failed:
            yield from LINES.park(held.token, "failed", [event.place], error, attempts, self.now())
        if work.behind:
            yield from LINES.park(held.token, "held", work.behind, now=self.now())

    # ---- Parked events

    async def take_due(self, held: HeldLine) -> None:
        while not held.ended.is_set():
            text = await self.database.run_async(LINES.first_due(held.token))
            if text is None:
                return
            (event,) = decode_block(text)
            await self._send_late(held, self._known(held), event, text)

    async def _send_late(self, held: HeldLine, line: _Line, event: RawEvent, text: str) -> None:
        """Append a parked event after all, under the place that its line has reached."""
        there = line.tail.position
        reached = Position(line.epoch, held.position)
        late = there.late + 1 if there is not None and there[:2] == reached[:2] else 1
        key = event.key if self.relay.order == "key" else None
        # It counts as failed until it is sent: a process may die of it.
        begin = LINES.park_again(held.token, event.place, DIED, key, 1, self.now())
        await self.database.run_async(begin)
        position = reached._replace(late=late)
        try:
            message, error = await self._read(held, text, self._encode, event, position)
            if message is not None:
                tail = await self._append(held, line, [message])
        except EventRefused as refused:
            message, error = None, str(refused)
        except (RetryLater, LineLost):
            with suppress(DatabaseError, ConnectionClosed):
                await self.database.run_async(READERS.retry_parked(self.name, [event.id]))
            raise
        if message is None:
            again = LINES.park_again(held.token, event.place, error, key, now=self.now())
            await self.database.run_async(again)
            self._emit(STREAM_PARKED, held, event_name=event.name, id=event.id, error=error)
            return
        sent = self._sent(line, held.position, tail)
        retried = [*sent.retried, (event.place, held.position, late)][-MAX_RETRIED:]
        sent = sent_at(tail, sent.base, retried)

        def unpark() -> Op[None]:
            yield from LINES.unpark(held.token, event.place, key)
            yield from self._move(held, held.position, held.position, sent)

        await self.database.run_async(unpark())
        line.tail, line.sent = tail, sent
        self._emit(STREAM_CONSUMED, held, events=1, run_ms=0)

    def _emit(self, spec: EventSpec, held: HeldLine, **fields: Any) -> None:
        self.emit(spec, {"reader": self.name, "line": held.line, **fields})
