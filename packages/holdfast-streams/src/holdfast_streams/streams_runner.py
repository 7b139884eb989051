"""Runs the readers of an application in its workers, and in ticks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast.core.events import EventSpec, wants_of
from holdfast.notify.base import CONTROL_HINT, LOG_HINT, Hint, Listener, is_about_log
from holdfast.scheduler.runner import Concurrency, RunnerContext, RunnerReport
from holdfast.settings import load_some
from holdfast.worker.handler_threads import HandlerThreads
from holdfast.worker.wakes import call_on
from holdfast_streams.consumer import ConsumerDelivery
from holdfast_streams.delivery import BlockDelivery
from holdfast_streams.inbox.inbox_runner import InboxRunner
from holdfast_streams.log_upkeep import LogUpkeep
from holdfast_streams.reader_loop import ReaderLoop
from holdfast_streams.registration import Streams, declared_streams
from holdfast_streams.relay.cloud_events import EventEncoder
from holdfast_streams.relay.relay import RelayDelivery, open_sink
from holdfast_streams.stream_event import EventDecoder

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.settings import Settings

UPKEEP_S = 60.0
TICK_LOOK_S = 0.02

_SETTINGS = tuple(
    f"HOLDFAST_STREAMS_{name}"
    for name in ("KEEP_HOURS", "PARTITION_HOURS", "TAKEOVER_MS", "HANDLERS")
)


class StreamsRunner:
    """Reads the log for an application's readers: in a worker until it stops, in a tick to the end of the log."""

    name = "streams"
    max_ms: int | None = None
    concurrency: Concurrency = "continuous"

    def __init__(self, app: Holdfast, streams: Streams) -> None:
        self._app = app
        self._streams = streams
        values: dict[str, Any] = load_some(_SETTINGS, {})
        self._keep_hours, self._partition_hours, self._lease_ms, self._handlers = (
            values[name] for name in _SETTINGS
        )

    async def run(self, context: RunnerContext) -> RunnerReport:
        """Read until the worker stops; in a tick, until there is nothing more or the budget is spent."""
        threads = HandlerThreads(self._handlers, "holdfast-consumer")
        deliveries = self._deliveries(context, threads)
        loop = ReaderLoop(
            self._app.database,
            deliveries,
            context.worker,
            self._lease_ms,
            self._handlers,
            context.clock,
            lambda spec, fields: _emit(context, spec, fields),
            context.now,
        )
        listener = self._listen(loop)
        upkeep = LogUpkeep(self._app, self._keep_hours, self._partition_hours, context)
        tending = asyncio.create_task(self._tend(upkeep, context), name="holdfast log upkeep")
        ending = asyncio.create_task(self._end_loop(loop, context), name="holdfast stream end")
        try:
            await loop.run()
        finally:
            for task in (ending, tending):
                task.cancel()
            await asyncio.gather(ending, tending, return_exceptions=True)
            threads.close()
            await asyncio.gather(*(each.close() for each in deliveries.values()))
            if listener is not None:
                await asyncio.to_thread(listener.close)
                self._app.notifier.send([CONTROL_HINT])
        if context.mode == "tick":
            await upkeep.run()
        context.counts.processed += loop.events
        return context.counts

    def _deliveries(
        self, context: RunnerContext, threads: HandlerThreads
    ) -> dict[str, BlockDelivery]:
        found: dict[str, BlockDelivery] = {}
        for name, each in self._streams.consumers.items():
            found[name] = ConsumerDelivery(
                each,
                self._app.database,
                EventDecoder(each.data_type, self._app.registry.sealer),
                threads,
                context.clock,
                lambda spec, fields: _emit(context, spec, fields),
                context.now,
            )
        for relay in self._streams.relays.values():
            found[relay.name] = RelayDelivery(
                relay,
                open_sink(relay),
                EventEncoder(
                    relay.source,
                    self._app.registry.sealer,
                    relay.is_raw,
                    relay.encode,
                    relay.content_type,
                ),
                self._app.database,
                context.clock,
                lambda spec, fields: _emit(context, spec, fields),
                context.now,
            )
        return found

    async def _end_loop(self, loop: ReaderLoop, context: RunnerContext) -> None:
        """Stop the loop when the worker stops, or a tick has read all there is."""
        if context.mode == "background":
            await context.stopping.wait()
        else:
            while not (loop.is_done or context.is_spent() or context.stopping.is_set()):
                await context.clock.sleep(TICK_LOOK_S)
        loop.stop()

    async def _tend(self, upkeep: LogUpkeep, context: RunnerContext) -> None:
        # It ends by itself as well: what is cancelled in a statement may have ended it, and goes on.
        while context.mode == "background" and not context.stopping.is_set():
            await upkeep.run()
            pause_s = UPKEEP_S * (0.75 + context.clock.random() / 2)
            await context.clock.wait(context.stopping, pause_s)

    def _listen(self, loop: ReaderLoop) -> Listener | None:
        if not self._app.sends_hints:
            return None
        here = asyncio.get_running_loop()

        def on_hint(hint: Hint) -> None:
            if hint.type == LOG_HINT.type:
                call_on(here, loop.wake)
            elif hint.type == CONTROL_HINT.type:
                call_on(here, loop.look)
            elif is_about_log(hint):
                call_on(here, loop.peek)

        return self._app.notifier.listen(on_hint)


def _emit(context: RunnerContext, spec: EventSpec, fields: dict[str, Any]) -> None:
    if context.observer is not None and wants_of(context.observer)(spec.name):
        context.observer.observe(spec(**fields))


def make_runner(app: Holdfast, settings: Settings) -> StreamsRunner | None:
    """Return the runner of an application that declares readers."""
    streams = declared_streams(app)
    if streams is None or not (streams.consumers or streams.relays):
        return None
    return StreamsRunner(app, streams)


def make_inbox_runner(app: Holdfast, settings: Settings) -> InboxRunner | None:
    """Return the runner of an application that declares inboxes."""
    streams = declared_streams(app)
    if streams is None or not streams.inbox.declared:
        return None
    return InboxRunner(app, streams.inbox)


RUNNERS = (make_runner, make_inbox_runner)
