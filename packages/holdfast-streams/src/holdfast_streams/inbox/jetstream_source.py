"""An inbox's stream in NATS JetStream: a durable pull consumer that processes share."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence

from holdfast.core.errors import MissingExtra

try:
    import nats.errors
    import nats.js.errors
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js.api import AckPolicy, ConsumerConfig
except ImportError as error:
    raise MissingExtra(
        "an inbox of JetStream needs nats-py", help='pip install "holdfast-jobs[streams,nats]"'
    ) from error

from holdfast_streams.brokers import JetStream
from holdfast_streams.errors import BrokerAway
from holdfast_streams.inbox.broker_source import BrokerDelivery, message_id
from holdfast_streams.inbox.message import RawMessage
from holdfast_streams.nats_wire import FastClient, frame, send_frames

CONNECT_S = 5
ANSWER_S = 5.0
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
        self._turn = 0
        self._wanted = 0
        self._found: list[Msg] = []
        self._status: Msg | None = None
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
        self._turn += 1
        self._wanted, self._status = wanted, None
        self._is_answered.clear()
        body = json.dumps(request).encode()
        await self._client.publish(self._next, body, reply=f"{self._inbox}.{self._turn}")
        try:
            async with asyncio.timeout(patience_s):
                await self._is_answered.wait()
        except TimeoutError:
            if not self._found:
                raise nats.errors.TimeoutError from None
        found, self._found = self._found, []
        status = self._status
        if status is not None and not found and _status_of(status) not in _ENDS:
            raise nats.errors.Error(f"{_status_of(status)} {(status.headers or {}).get('Description', '')}")
        return found

    async def _on_message(self, message: Msg) -> None:
        if not message.reply:
            # What an earlier pull ended with is of no interest.
            if message.subject == f"{self._inbox}.{self._turn}" and _status_of(message) != "100":
                self._status = message
                self._is_answered.set()
            return
        # One that an earlier pull brought late counts, too: it is this process's to take.
        self._found.append(message)
        if len(self._found) >= self._wanted:
            self._is_answered.set()


def _status_of(message: Msg) -> str:
    return (message.headers or {}).get("Status", "")


class JetStreamSource:
    """See `broker_source.BrokerSource`. Without the client's own reconnecting: the loop must see every loss."""

    def __init__(self, inbox: str, stream: JetStream, ack_wait_s: float) -> None:
        self._inbox = inbox
        self._stream = stream
        self._durable = stream.durable or re.sub(r"[^A-Za-z0-9_-]", "_", inbox)
        self._ack_wait_s = ack_wait_s
        self._client = FastClient()
        self._pull: Pull | None = None

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
            await self._bind()
        except nats.js.errors.NotFoundError as error:
            raise BrokerAway(f"NATS has no stream {self._stream.stream}") from error
        except _ERRORS as error:
            cause = heard[-1] if heard else error
            raise BrokerAway(
                f"NATS cannot be reached: {str(cause) or type(cause).__name__}"
            ) from error

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
        stream, sequence, delivered, at = read_reply(message.reply)
        # With its time: a stream that was made anew counts from one again.
        id = message_id(headers, f"{stream} {sequence} {at}")
        raw = RawMessage(self._inbox, id, message.data, headers, message.subject)
        return BrokerDelivery(raw, delivered, message)

    async def ack(self, deliveries: Sequence[BrokerDelivery]) -> None:
        try:
            await send_frames(self._client, [frame(each.handle.reply, b"") for each in deliveries])
            await self._client.flush(CONNECT_S)
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

    async def close(self) -> None:
        if not self._client.is_closed:
            await self._client.close()


def read_reply(reply: str) -> tuple[str, int, int, str]:
    """Return what the subject of an acknowledgement says: stream, sequence, how often it was delivered, and when stored."""
    parts = reply.split(".")
    if len(parts) != SHORT_REPLY:
        # Since NATS 2.11 it may name a domain and an account before.
        del parts[2:4]
    return parts[2], int(parts[5]), int(parts[4]), f"{int(parts[7]) / 1e9:.6f}"
