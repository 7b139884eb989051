"""Consumers of the event log beside the workers: each process reads lines, and an operator retries what is parked."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from holdfast import Retry
from holdfast.notify.base import LOG_HINT, Hint, is_about_log
from holdfast.worker.handler_threads import HandlerThreads
from holdfast_streams import add_streams
from holdfast_streams.consumer import ConsumerDelivery
from holdfast_streams.reader_loop import ReaderLoop
from holdfast_streams.reader_store import READERS
from holdfast_streams.stream_event import EventDecoder, StreamEvent
from tests.simulation import workload
from tests.simulation.history import History
from tests.simulation.plan import PlannedEvent
from tests.simulation.server import LOST, SimulatedDatabase
from tests.simulation.world import SimulatedClock

EVENT = "sim.fact"
READER = "facts"
LEASE_MS = 2_000
HANDLERS = 4
TAKEN = """
insert into taken (id, key, number)
select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') from json_each(?)
"""
SOON = Retry(base="50ms", cap="200ms", max_attempts=2)

streams = add_streams(workload.app)


@streams.consumer(EVENT, name=READER, batch=4, order="key", since="earliest", retry=SOON)
async def facts(events: list[StreamEvent[PlannedEvent]], tx: Any) -> None:
    """What a process calls is `take_facts`, which knows the process."""


async def take_facts(
    history: History, process: str, events: Sequence[StreamEvent[PlannedEvent]], tx: Any
) -> None:
    """Note the call, take its time, and write a row for each event."""
    call = history.begin_block(process, [each.id for each in events])
    try:
        for each in events:
            if each.data.ms:
                await asyncio.sleep(each.data.ms / 1000)
            if history.fails_again(each.data):
                raise workload.Flaw
        rows = [(each.id, each.key, each.data.number) for each in events]
        await tx.execute(TAKEN, (msgspec.json.encode(rows).decode(),))
    except BaseException as error:
        call.how = type(error).__name__
        raise
    call.how = "returned"


class ConsumerProcess:
    """The consumers of one process."""

    def __init__(
        self, database: SimulatedDatabase, clock: SimulatedClock, history: History, name: str
    ) -> None:
        consumer = replace(streams.consumers[READER], handler=partial(take_facts, history, name))
        delivery = ConsumerDelivery(
            consumer,
            database,  # type: ignore[arg-type]
            EventDecoder(PlannedEvent, None),
            HandlerThreads(1, "unused"),
            clock,
            lambda spec, fields: None,
        )
        self._loop = ReaderLoop(
            database,  # type: ignore[arg-type]
            {READER: delivery},
            name,
            LEASE_MS,
            HANDLERS,
            clock,
            lambda spec, fields: None,
        )
        self.stop = self._loop.stop

    async def run(self, hints: Any) -> None:
        """Read until stopped."""
        listener = hints.listen(self._on_hint)
        try:
            await self._loop.run()
        finally:
            listener.close()

    def _on_hint(self, hint: Hint) -> None:
        if hint.type == LOG_HINT.type:
            self._loop.wake()
        elif is_about_log(hint):
            self._loop.peek()


async def publish(events: Sequence[PlannedEvent], history: History, send_hints: Any) -> None:
    """Publish events in one transaction; nobody knows of one whose answer was lost whether it was committed."""
    numbers = [each.number for each in events]
    history.world.note(f"publish {numbers}")
    try:
        async with workload.app.transaction() as tx:
            for each in events:
                await workload.app.publish(tx, EVENT, each, key=each.key)
            if events[0].undone:
                raise ZeroDivisionError
    except ZeroDivisionError:
        history.unpublished.update(numbers)
    except LOST:
        history.world.note(f"perhaps published {numbers}")
    else:
        history.published.update(numbers)
        send_hints([LOG_HINT])


async def retry_parked(database: SimulatedDatabase, send_hints: Any) -> None:
    """Have parked events taken again, as an operator does."""
    with suppress(*LOST):
        await database.run_async(READERS.retry_parked(READER, None))
        send_hints([LOG_HINT])
