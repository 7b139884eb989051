"""A consumer's delivery without a loop: lines are claimed by hand, so that two processes can be played in one."""

from __future__ import annotations

from typing import Any

from holdfast.core.retry import Retry
from holdfast.storage.id_generator import new_id
from holdfast.worker.clock import SystemClock
from holdfast.worker.handler_threads import HandlerThreads
from holdfast_streams import StreamEvent
from holdfast_streams.consumer import Consumer, ConsumerDelivery
from holdfast_streams.line_reader import HeldLine, LineReader
from holdfast_streams.reader_store import LINES, READERS, LineToken, ReadBlock
from holdfast_streams.stream_event import EventDecoder
from tests.streams.scene import Scene

HOUR_MS = 3_600_000


class Process:
    """What one process would do with the lines of a consumer that writes down what it gets."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene = scene
        self.name = name
        self.database = scene.app.database
        self.held: dict[int, HeldLine] = {}
        self._link = self.database.link(f"streams {name}")
        self._threads = HandlerThreads(1, name)

        def take(events: list[StreamEvent[Any]], tx: Any) -> None:
            for each in events:
                scene.insert(tx, each)

        consumer = Consumer(
            "revenue", ("order.*",), take, 500, False, False, Any, retry=Retry(max_attempts=1)
        )
        self.delivery = ConsumerDelivery(
            consumer,
            self.database,
            EventDecoder(Any, None),
            self._threads,
            SystemClock(),
            lambda spec, fields: scene.observe(spec(**fields)),
        )
        self.database.run(READERS.register("revenue", "consumer", ["order.*"], None))

    async def claim(self, lease_ms: int = HOUR_MS) -> None:
        """Take all lines that are free."""
        claimed = await self._link.run_atomic(
            LINES.claim("revenue", self.name, new_id(), 16, lease_ms)
        )
        for each in claimed:
            token = LineToken(each.reader, each.line, each.token)
            self.held[each.line] = HeldLine(token, each.position, each.fence)

    async def deliver(self) -> None:
        """Take what there is in all lines that this process believes to hold."""
        for held, block in await self.read():
            await self.delivery.deliver(held, block)

    async def read(self) -> list[tuple[HeldLine, ReadBlock]]:
        """Read what there is in them."""
        reader = LineReader(self._link, SystemClock())
        found = [(held, await reader.read(held, 500)) for held in self.held.values()]
        return [(held, each) for held, each in found if each is not None and each.upto is not None]

    async def close(self) -> None:
        await self._link.close()
        self._threads.close()
