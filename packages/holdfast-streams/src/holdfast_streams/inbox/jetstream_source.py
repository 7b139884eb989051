"""An inbox's stream in NATS JetStream: a durable pull consumer that processes share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

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

CONNECT_S = 5
MAX_OPEN = 20_000
"""How many messages the processes of an inbox may have at once, not acknowledged."""

_ERRORS = (nats.errors.Error, OSError, TimeoutError)


class JetStreamSource:
    """See `broker_source.BrokerSource`. Without the client's own reconnecting: the loop must see every loss."""

    def __init__(self, inbox: str, stream: JetStream, ack_wait_s: float) -> None:
        self._inbox = inbox
        self._stream = stream
        self._durable = stream.durable or re.sub(r"[^A-Za-z0-9_-]", "_", inbox)
        self._ack_wait_s = ack_wait_s
        self._client = Client()
        self._pull: Any = None

    async def open(self) -> None:
        self._client = Client()
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
        self._pull = await jetstream.pull_subscribe_bind(durable=self._durable, stream=stream)

    async def fetch(self, limit: int, wait_s: float) -> list[BrokerDelivery]:
        try:
            found = await self._pull.fetch(limit, wait_s)
        except nats.errors.TimeoutError:
            found = []
        except _ERRORS as error:
            raise BrokerAway(f"NATS says: {str(error) or type(error).__name__}") from error
        if not found and not self._client.is_connected:
            raise BrokerAway("the connection to NATS was lost")
        return [self._delivery(each) for each in found]

    def _delivery(self, message: Msg) -> BrokerDelivery:
        headers = {name.lower(): text for name, text in (message.headers or {}).items()}
        facts = message.metadata
        # With its time: a stream that was made anew counts from one again.
        place = f"{facts.stream} {facts.sequence.stream} {facts.timestamp.timestamp():.6f}"
        id = message_id(headers, place)
        raw = RawMessage(self._inbox, id, message.data, headers, message.subject)
        return BrokerDelivery(raw, facts.num_delivered or 1, message)

    async def ack(self, deliveries: Sequence[BrokerDelivery]) -> None:
        try:
            for each in deliveries:
                await each.handle.ack()
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
