"""An inbox's stream in NATS JetStream: a durable consumer that processes share, or lines with one reader each."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from holdfast.core.errors import MissingExtra

try:
    import nats.errors
    import nats.js.errors
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, RetentionPolicy, StreamInfo
except ImportError as error:
    raise MissingExtra(
        "an inbox of JetStream needs nats-py", help='pip install "holdfast-jobs[streams,nats]"'
    ) from error

from holdfast_streams.brokers import JetStream
from holdfast_streams.errors import BrokerAway, InboxUnfit
from holdfast_streams.inbox.broker_source import (
    MISSING_HELP,
    POSITION,
    BrokerDelivery,
    PlacedMessage,
    message_id,
    message_key,
)
from holdfast_streams.inbox.message import RawMessage
from holdfast_streams.nats_wire import FastClient, frame, heed_cancel, send_frames
from holdfast_streams.relay.sink import Position, read_position

CONNECT_S = 5
ANSWER_S = 5.0
INACTIVE_S = 120.0
"""After how long without a pull the server forgets the consumer of a line."""

LOOK_S = 15.0
"""How often a line at rest is compared with what was read of it."""

SHORT_REPLY = 9
"""How many parts the subject of an acknowledgement has without a domain."""

MAX_OPEN = 20_000
"""How many messages the processes of an inbox may have at once, not acknowledged."""

_ERRORS = (nats.errors.Error, OSError, TimeoutError)

_ENDS = ("404", "408")
"""How a server ends a pull: nothing there, or the time is over. Any other status is an error."""


class Pull:
    """Pulls messages of a consumer. The client's own way makes two tasks and a timer for each of them."""

    def __init__(self, client: Client, stream: str, consumer: str) -> None:
        self._client = client
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = client.new_inbox()
        self._pulls = 0
        self._wanted = 0
        self._found: list[Msg] = []
        self._statuses: list[Msg] = []
        self._is_answered = asyncio.Event()

    async def open(self) -> None:
        """Listen for what is pulled."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._on_message, pending_bytes_limit=0)

    async def fetch(self, limit: int, wait_s: float) -> list[Msg]:
        """Return what there is; when there is nothing, wait for one so long. Raises: nats.errors.Error."""
        found = await self._pull({"batch": limit, "no_wait": True}, limit, ANSWER_S)
        if found:
            return found
        expires = int(wait_s * 1e9)
        return await self._pull({"batch": 1, "expires": expires}, 1, wait_s + ANSWER_S)

    async def _pull(self, request: dict[str, object], wanted: int, patience_s: float) -> list[Msg]:
        self._pulls += 1
        self._wanted = wanted
        self._statuses.clear()
        self._is_answered.clear()
        body = json.dumps(request).encode()
        await self._client.publish(self._next, body, reply=f"{self._inbox}.{self._pulls}")
        try:
            async with asyncio.timeout(patience_s):
                await self._is_answered.wait()
        except TimeoutError:
            if not self._found:
                raise nats.errors.TimeoutError from None
        found, self._found = self._found, []
        for status in self._statuses:
            if not found and _status_of(status) not in _ENDS:
                words = (status.headers or {}).get("Description", "")
                raise nats.errors.Error(f"{_status_of(status)} {words}")
        return found

    async def _on_message(self, message: Msg) -> None:
        if not message.reply:
            # What an earlier pull ended with is of no interest.
            if message.subject == f"{self._inbox}.{self._pulls}" and _status_of(message) != "100":
                self._statuses.append(message)
                self._is_answered.set()
            return
        # One that an earlier pull brought late counts, too: it is this process's to take.
        self._found.append(message)
        if len(self._found) >= self._wanted:
            self._is_answered.set()


def _status_of(message: Msg) -> str:
    return (message.headers or {}).get("Status", "")


class _Connection:
    """A connection for one inbox. Without the client's own reconnecting: the loop must see every loss."""

    def __init__(self, inbox: str, stream: JetStream) -> None:
        self._inbox = inbox
        self._stream = stream
        self._client: Client = FastClient()

    async def open(self) -> None:
        self._client = FastClient()
        heard: list[Exception] = []

        async def on_error(error: Exception) -> None:
            heard.append(error)

        try:
            await self._client.connect(
                self._stream.servers,
                name=f"holdfast inbox {self._inbox}",
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=CONNECT_S,
                error_cb=on_error,
            )
            await heed_cancel(self._bind())
        except nats.js.errors.NotFoundError as error:
            raise BrokerAway(
                f"NATS has no stream {self._stream.stream}", help=MISSING_HELP
            ) from error
        except _ERRORS as error:
            cause = heard[-1] if heard else error
            raise BrokerAway(
                f"NATS cannot be reached: {str(cause) or type(cause).__name__}"
            ) from error

    async def _bind(self) -> None:
        """Make ready to read."""

    async def close(self) -> None:
        if not self._client.is_closed:
            await self._client.close()


class JetStreamSource(_Connection):
    """See `broker_source.BrokerSource`."""

    def __init__(self, inbox: str, stream: JetStream, ack_wait_s: float) -> None:
        super().__init__(inbox, stream)
        self._durable = stream.durable or re.sub(r"[^A-Za-z0-9_-]", "_", inbox)
        self._ack_wait_s = ack_wait_s
        self._pull: Pull | None = None

    async def _bind(self) -> None:
        """Use the consumer that is there, as it is, or make one."""
        jetstream, stream = self._client.jetstream(), self._stream.stream
        try:
            await jetstream.consumer_info(stream, self._durable)
        except nats.js.errors.NotFoundError:
            wanted = ConsumerConfig(
                durable_name=self._durable,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=self._ack_wait_s,
                max_deliver=-1,
                max_ack_pending=MAX_OPEN,
                filter_subjects=self._stream.filters or None,
            )
            await jetstream.add_consumer(stream, wanted)
        self._pull = Pull(self._client, stream, self._durable)
        await self._pull.open()

    async def fetch(self, limit: int, wait_s: float) -> list[BrokerDelivery]:
        assert self._pull is not None
        try:
            found = await self._pull.fetch(limit, wait_s)
        except _ERRORS as error:
            raise BrokerAway(f"NATS says: {str(error) or type(error).__name__}") from error
        if not found and not self._client.is_connected:
            raise BrokerAway("the connection to NATS was lost")
        return [self._delivery(each) for each in found]

    def _delivery(self, message: Msg) -> BrokerDelivery:
        headers = {name.lower(): text for name, text in (message.headers or {}).items()}
        stream, sequence, delivered, at, _ = read_reply(message.reply)
        # With its time: a stream that was made anew counts from one again.
        id = message_id(headers, f"{stream} {sequence} {at}")
        raw = RawMessage(self._inbox, id, message.data, headers, message.subject)
        return BrokerDelivery(raw, delivered, message)

    async def ack(self, deliveries: Sequence[BrokerDelivery]) -> None:
        try:
            await send_frames(self._client, [frame(each.handle.reply, b"") for each in deliveries])
            await heed_cancel(self._client.flush(CONNECT_S))
        except _ERRORS as error:
            raise BrokerAway(f"NATS says: {str(error) or type(error).__name__}") from error

    async def retry_later(self, delivery: BrokerDelivery, delay_s: float) -> None:
        try:
            await delivery.handle.nak(delay=max(delay_s, 0.001))
        except _ERRORS as error:
            raise BrokerAway(f"NATS says: {str(error) or type(error).__name__}") from error

    async def keep(self, deliveries: Sequence[BrokerDelivery]) -> None:
        try:
            for each in deliveries:
                await each.handle.in_progress()
        except _ERRORS as error:
            raise BrokerAway(f"NATS says: {str(error) or type(error).__name__}") from error


def read_reply(reply: str) -> tuple[str, int, int, str, int]:
    """Return what the subject of an acknowledgement says.

    That is the stream, the number in it, how often it was delivered, when it was stored, and its number among all that
    the consumer has delivered.
    """
    parts = reply.split(".")
    if len(parts) != SHORT_REPLY:
        # Since NATS 2.11 it may name a domain and an account before.
        del parts[2:4]
    return parts[2], int(parts[5]), int(parts[4]), f"{int(parts[7]) / 1e9:.6f}", int(parts[6])


def _relayed_from(headers: Mapping[str, str]) -> Position | None:
    """Return where in its log a message was relayed from; None for one that no relay wrote, whatever it says."""
    try:
        return read_position(headers[POSITION])
    except (KeyError, ValueError):
        return None


class JetPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """Up to where a line is taken: a message's number, of which stream, and where in its log it was relayed from."""

    sequence: int
    created: str
    position: str | None = None


class JetStreamLines(_Connection):
    """See `broker_source.LinedSource`. A line has a consumer of its own without acknowledgements, for one feed."""

    @property
    def lines(self) -> list[str]:
        return self._stream.lines

    async def begin(self, line: str, place: str | None) -> JetStreamFeed:
        known = None if place is None else msgspec.json.decode(place, type=JetPlace)
        feed = JetStreamFeed(self._client, self._inbox, self._stream.stream, line)
        try:
            await heed_cancel(feed.open(known))
        except nats.js.errors.NotFoundError as error:
            raise BrokerAway(
                f"NATS has no stream {self._stream.stream}", help=MISSING_HELP
            ) from error
        except _ERRORS as error:
            raise BrokerAway(f"NATS says: {str(error) or type(error).__name__}") from error
        return feed


class JetStreamFeed:
    """See `broker_source.LineFeed`."""

    def __init__(self, client: Client, inbox: str, stream: str, line: str) -> None:
        self._client = client
        self._jetstream = client.jetstream()
        self._inbox = inbox
        self._stream = stream
        self._line = line
        self._consumer = f"holdfast-{secrets.token_hex(8)}"
        self._pull = Pull(client, stream, self._consumer)
        self._created = ""
        self._last: JetPlace | None = None
        self._after: Position | None = None
        self._delivered = 0
        self._looked = time.monotonic()

    async def open(self, known: JetPlace | None) -> None:
        """Make a consumer that begins after what is known."""
        info = await self._jetstream.stream_info(self._stream)
        self._created, self._last = str(info.created), known
        if info.config.retention not in (None, RetentionPolicy.LIMITS):
            raise InboxUnfit(f"the stream {self._stream} removes messages that were read")
        if known is not None and known.position is not None:
            self._after = read_position(known.position)
        wanted = ConsumerConfig(
            name=self._consumer,
            ack_policy=AckPolicy.NONE,
            filter_subject=self._line,
            inactive_threshold=INACTIVE_S,
            mem_storage=True,
            num_replicas=1,
        )
        if known is not None and await self._has(known, info):
            wanted.deliver_policy = DeliverPolicy.BY_START_SEQUENCE
            wanted.opt_start_seq = known.sequence + 1
        elif known is not None and known.position is None and known.created == self._created:
            # It has lost its end, and only the numbers of what comes now tell it from what was taken.
            wanted.deliver_policy = DeliverPolicy.NEW
        await self._jetstream.add_consumer(self._stream, wanted)
        await self._pull.open()

    async def _has(self, known: JetPlace, info: StreamInfo) -> bool:
        """Whether the stream still has the message that was taken last where it was, or has removed it as too old."""
        if known.created != str(info.created) or known.sequence > info.state.last_seq:
            return False
        if known.position is None or known.sequence < info.state.first_seq:
            return True
        try:
            found = await self._jetstream.get_msg(self._stream, known.sequence)
        except nats.js.errors.NotFoundError:
            return True
        return (found.headers or {}).get("Holdfast-Position") == known.position

    async def fetch(self, limit: int, wait_s: float) -> list[PlacedMessage]:
        while True:
            try:
                found = await self._pull.fetch(limit, wait_s)
                if not found:
                    await heed_cancel(self._look())
            except _ERRORS as error:
                raise BrokerAway(f"NATS says: {str(error) or type(error).__name__}") from error
            new = [placed for each in found if (placed := self._place_of(each)) is not None]
            if new or not found:
                return new

    async def _look(self) -> None:
        """At rest, see now and then that the stream is still the one that was read. Raises: BrokerAway."""
        if not self._client.is_connected:
            raise BrokerAway("the connection to NATS was lost")
        if time.monotonic() - self._looked < LOOK_S:
            return
        self._looked = time.monotonic()
        info = await self._jetstream.stream_info(self._stream)
        if self._last is not None and not await self._has(self._last, info):
            raise BrokerAway(f"the stream {self._stream} has lost messages, and is read again")

    def _place_of(self, message: Msg) -> PlacedMessage | None:
        """Return a message with its place; None if it was taken before. Raises: BrokerAway."""
        stream, sequence, _, at, delivered = read_reply(message.reply)
        if delivered != self._delivered + 1:
            raise BrokerAway(f"messages of {self._line} were lost on their way, and are read again")
        self._delivered = delivered
        headers = {name.lower(): text for name, text in (message.headers or {}).items()}
        here = _relayed_from(headers)
        if here is not None:
            if self._after is not None and here <= self._after:
                return None
            self._after = here
        position = None if here is None else headers[POSITION]
        self._last = JetPlace(sequence, self._created, position)
        id = message_id(headers, f"{stream} {sequence} {at}")
        raw = RawMessage(self._inbox, id, message.data, headers, message.subject)
        return PlacedMessage(raw, msgspec.json.encode(self._last).decode(), message_key(headers))

    async def close(self) -> None:
        with suppress(*_ERRORS):
            if self._client.is_connected:
                await self._jetstream.delete_consumer(self._stream, self._consumer)
