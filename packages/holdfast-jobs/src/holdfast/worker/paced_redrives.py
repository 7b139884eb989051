"""Continues redrives at a rate while a worker runs that handles their types."""

from __future__ import annotations

from holdfast.commands.redrives import AHEAD_US, continue_redrive
from holdfast.core.instants import Instant
from holdfast.storage.database import Link
from holdfast.worker.background_loops import BackgroundLoop
from holdfast.worker.heartbeat import HeartbeatEvents
from holdfast.worker.worker_context import WorkerContext

STEP_S, LOOK_S = 0.1, 0.25
"""Two steps are so far apart at least, longer where another worker takes them."""


class Redrives(BackgroundLoop):
    """A background loop; it queries nothing until it is woken, which a heartbeat does while a redrive is under way."""

    def __init__(self, context: WorkerContext, link: Link, events: HeartbeatEvents) -> None:
        super().__init__(context, link, context.wakes.redrives)
        self._events = events
        self._claims = context.wakes.claims
        self._pause_s: float | None = None
        self._now: Instant | None = None

    async def run(self) -> None:
        """Continue what is under way until stopped."""
        while True:
            await self._context.clock.wait(self._wake, self._pause_s)
            self._wake.clear()
            if self._stopping.is_set():
                return
            with self._context.health.report(self._link.purpose):
                await self.step(self._link)

    async def step(self, link: Link) -> None:
        """Re-queue what is due of each redrive. Raises: the database's errors."""
        context, before = self._context, self._now
        types = [name for name in context.types if not context.policies.is_paused(name)]
        pauses, is_more_coming = [], False
        for id in await link.run(context.store.redrives.find(types)):
            step = await link.run_atomic(continue_redrive(context.store, id, types))
            if step is None:
                # Another worker continues it.
                pauses.append(LOOK_S)
                is_more_coming = True
                continue
            self._now = step.now
            self._events.on_redriven(step.change.events)
            shortest = STEP_S if step.change.answer else LOOK_S
            pauses.append(max(shortest, (step.next_at - step.now - AHEAD_US) / 1_000_000))
            # A clock that stands still, as in a test that moves it, brings nothing; nor does a job that may not start.
            is_more_coming = is_more_coming or (step.now != before and not step.is_held_up)
        if self._claims.is_more_coming and not pauses:
            # The last ones may not be due yet.
            await context.clock.wait(self._stopping, AHEAD_US / 1_000_000)
        self._pause_s = min(pauses, default=None)
        was_more_coming, self._claims.is_more_coming = self._claims.is_more_coming, is_more_coming
        if was_more_coming and not is_more_coming:
            self._claims.set_soon()
