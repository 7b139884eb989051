"""Runs the inboxes of an application in its workers, and in ticks: brokers, what is due again, and upkeep."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError
from holdfast.scheduler.runner import Concurrency, RunnerContext, RunnerReport
from holdfast.settings import load_some
from holdfast.worker.handler_threads import HandlerThreads
from holdfast_streams.brokers import JetStream, RedisStream
from holdfast_streams.inbox.broker_loop import BrokerLoop
from holdfast_streams.inbox.broker_source import BrokerSource, LinedSource
from holdfast_streams.inbox.declaration import Inbox, Inboxes
from holdfast_streams.inbox.inbox_events import INBOX_PARKED, INBOX_RECEIVED, INBOX_TRIMMED
from holdfast_streams.inbox.inbox_store import INBOXES
from holdfast_streams.inbox.intake import Intake
from holdfast_streams.inbox.ordered_loop import OrderedLoop

if TYPE_CHECKING:
    from holdfast.app import Holdfast

log = logging.getLogger("holdfast.inbox")

DUE_S = 1.0
"""How soon a message is taken that an operator retries."""

UPKEEP_S = 60.0
BEAT_S = 5.0
MEMBER_MS = 15_000
TRIM_BATCH = 1_000
MAX_BATCHES = 50

_SETTINGS = ("HOLDFAST_STREAMS_TAKEOVER_MS", "HOLDFAST_STREAMS_HANDLERS")


Loops = dict[str, BrokerLoop | OrderedLoop]


class InboxRunner:
    """Reads the brokers of an application's inboxes: in a worker until it stops, in a tick until there is nothing."""

    name = "inbox"
    max_ms: int | None = None
    concurrency: Concurrency = "continuous"

    def __init__(self, app: Holdfast, inboxes: Inboxes) -> None:
        self._app = app
        self._inboxes = inboxes
        values: dict[str, Any] = load_some(_SETTINGS, {})
        self._takeover_s = values[_SETTINGS[0]] / 1000
        self._handlers: int = values[_SETTINGS[1]]

    async def run(self, context: RunnerContext) -> RunnerReport:
        """Read until the worker stops; in a tick, until there is nothing more."""
        threads = HandlerThreads(self._handlers, "holdfast-inbox")
        intakes = {
            name: Intake(self._app, each, threads.run)
            for name, each in self._inboxes.declared.items()
        }
        loops = {
            name: self._loop(each, context)
            for name, each in intakes.items()
            if each.inbox.source is not None
        }
        try:
            await self._register(context)
            if context.mode == "tick":
                await self._run_tick(intakes, loops, context)
            else:
                await self._run_worker(intakes, loops, context)
        finally:
            threads.close()
            await self._tend("left", INBOXES.leave(context.worker))
        context.counts.processed += sum(each.messages for each in loops.values())
        return context.counts

    def _loop(self, intake: Intake, context: RunnerContext) -> BrokerLoop | OrderedLoop:
        if intake.inbox.order is not None:
            return OrderedLoop(
                intake,
                make_lines(intake.inbox),
                self._app.database,
                context.clock,
                context.worker,
                int(self._takeover_s * 1000),
                context.stopping,
                context.mode == "tick",
            )
        return BrokerLoop(
            intake,
            make_source(intake.inbox, context.worker, self._takeover_s),
            self._app.database,
            context.clock,
            self._takeover_s,
            context.stopping,
            context.mode == "tick",
        )

    async def _run_tick(
        self, intakes: dict[str, Intake], loops: Loops, context: RunnerContext
    ) -> None:
        for name, each in loops.items():
            await each.run()
            await self._beat(name, each, context)
        await self._take_due(intakes)
        await self._trim(context)

    async def _run_worker(
        self, intakes: dict[str, Intake], loops: Loops, context: RunnerContext
    ) -> None:
        async with asyncio.TaskGroup() as group:
            others = [
                group.create_task(self._watch_due(intakes, context), name="holdfast inbox due"),
                group.create_task(self._upkeep(context), name="holdfast inbox upkeep"),
                *(
                    group.create_task(self._keep_beating(name, each, context))
                    for name, each in loops.items()
                    if not each.beats_itself
                ),
            ]
            running = [
                group.create_task(each.run(), name=f"holdfast inbox {name}")
                for name, each in loops.items()
            ]
            await context.stopping.wait()
            if running:
                await asyncio.wait(running)
            for task in others:
                task.cancel()

    async def _register(self, context: RunnerContext) -> None:
        for each in self._inboxes.declared.values():
            found = INBOXES.register(each.name, each.kind, each.source_text, context.now())
            await self._tend("registered", found)

    async def _tend(self, what: str, op: Any) -> Any:
        """Run an operation that is tried again the next time if the database is away."""
        try:
            return await self._app.database.run_async(op)
        except HoldfastError as error:
            log.warning("inboxes could not be %s: %s", what, error)
            return None

    # ---- What goes on beside the brokers
    # Each ends by itself as well: what is cancelled in a statement may have ended it, and goes on.

    async def _keep_beating(
        self, name: str, loop: BrokerLoop | OrderedLoop, context: RunnerContext
    ) -> None:
        while not context.stopping.is_set():
            loop.changed.clear()
            await self._beat(name, loop, context)
            if not context.stopping.is_set():
                await context.clock.wait(loop.changed, BEAT_S)

    async def _beat(
        self, name: str, loop: BrokerLoop | OrderedLoop, context: RunnerContext
    ) -> None:
        beat = INBOXES.beat(name, context.worker, MEMBER_MS, loop.error, context.now())
        await self._tend("noted as read", beat)

    async def _watch_due(self, intakes: dict[str, Intake], context: RunnerContext) -> None:
        while not context.stopping.is_set():
            await self._take_due(intakes)
            await context.clock.wait(context.stopping, DUE_S)

    async def _take_due(self, intakes: dict[str, Intake]) -> None:
        """Take parked messages that an operator retries."""
        try:
            for name in await self._app.database.run_async(INBOXES.with_due()):
                intake = intakes.get(name)
                while intake is not None and (found := await intake.take_due()) is not None:
                    id, error = found
                    if error is None:
                        intake.emit(INBOX_RECEIVED, messages=1)
                    else:
                        intake.emit(INBOX_PARKED, message_id=id, error=error)
        except HoldfastError as error:
            log.warning("parked messages could not be taken: %s", error)

    async def _upkeep(self, context: RunnerContext) -> None:
        while not context.stopping.is_set():
            await self._trim(context)
            pause_s = UPKEEP_S * (0.75 + context.clock.random() / 2)
            await context.clock.wait(context.stopping, pause_s)

    async def _trim(self, context: RunnerContext) -> None:
        """Remove records that have outlived their time, a small batch after the other."""
        removed = 0
        for _ in range(MAX_BATCHES):
            count = await self._tend("trimmed", INBOXES.forget_seen(TRIM_BATCH, context.now()))
            removed += count or 0
            if not count or count < TRIM_BATCH:
                break
        await self._tend("trimmed", INBOXES.purge_members(context.now()))
        if removed:
            self._app.tell([INBOX_TRIMMED(messages=removed)])


def make_source(inbox: Inbox, worker: str, takeover_s: float) -> BrokerSource:
    """Return the source of a broker's inbox. Raises: MissingExtra."""
    match inbox.source:
        case JetStream() as stream:
            from holdfast_streams.inbox.jetstream_source import JetStreamSource

            return JetStreamSource(inbox.name, stream, takeover_s)
        case RedisStream() as stream:
            from holdfast_streams.inbox.redis_source import RedisSource

            return RedisSource(inbox.name, stream, worker, takeover_s)
        case None:
            raise AssertionError("an inbox of webhooks has no broker")


def make_lines(inbox: Inbox) -> LinedSource:
    """Return the lines of a broker's inbox that keeps the order of keys. Raises: MissingExtra."""
    match inbox.source:
        case JetStream() as stream:
            from holdfast_streams.inbox.jetstream_source import JetStreamLines

            return JetStreamLines(inbox.name, stream)
        case RedisStream() as stream:
            from holdfast_streams.inbox.redis_source import RedisLines

            return RedisLines(inbox.name, stream)
        case None:
            raise AssertionError("an inbox of webhooks has no broker")
