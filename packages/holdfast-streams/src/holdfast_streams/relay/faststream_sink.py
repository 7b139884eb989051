"""A publisher of FastStream as a sink: at least once.

Its broker can neither say where a line ends nor refuse a second writer. So the database alone says where to go on: what
was published by a process that died before it could note that is published again, and so is what one publishes that was
stopped for longer than its lease.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from holdfast_streams.brokers import FastStreamTarget
from holdfast_streams.errors import BrokerAway
from holdfast_streams.relay.sink import LineEnd, OutgoingMessage, Position, Stored

ANSWER_S = 10.0

UNKNOWN_END = LineEnd(oldest=1)
"""Nothing is known of the stream: the database's position counts, and nothing is taken for lost."""


class FastStreamSink:
    """See `sink.Sink`."""

    def __init__(self, target: FastStreamTarget) -> None:
        self._broker = target.broker
        self._publisher = target.publisher
        self._has_key = "key" in inspect.signature(target.publisher.publish).parameters
        self._opening = asyncio.Lock()
        self._is_open = False

    async def open(self, creates: bool) -> None:
        async with self._opening:
            if not self._is_open:
                await self._try(self._broker.start())
                self._is_open = True

    async def resume(self, line: int) -> LineEnd:
        return UNKNOWN_END

    async def append(
        self, line: int, expected: LineEnd, batch: Sequence[OutgoingMessage]
    ) -> LineEnd:
        for each in batch:
            headers = {**each.headers, "Holdfast-Position": each.position.on(line)}
            more: dict[str, Any] = {}
            if self._has_key and each.key is not None:
                more["key"] = each.key.encode()
            await self._try(self._publisher.publish(each.data, headers=headers, **more))
        end = batch[-1]
        return LineEnd(end.position, end.id)

    async def read_after(self, line: int, position: Position, limit: int) -> list[Stored]:
        return []

    def refusal(self, line: int, message: OutgoingMessage) -> str | None:
        return None

    async def close(self) -> None:
        if self._is_open:
            with suppress(BrokerAway):
                await self._try(self._broker.stop())

    async def _try(self, work: Any) -> None:
        """Wait for the broker. Raises: BrokerAway: what FastStream raises depends on the broker behind it."""
        try:
            async with asyncio.timeout(ANSWER_S):
                await work
        except Exception as error:
            raise BrokerAway(
                f"FastStream cannot publish: {str(error) or type(error).__name__}"
            ) from error
