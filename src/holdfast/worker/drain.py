"""Ends a worker in order: nothing new, unstarted work back, handlers to their end, last words, good-bye."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from holdfast.worker.clock import all_ended
from holdfast.worker.parts import OWN_LINKS, Parts
from holdfast.worker.presence import counters_of
from holdfast.worker.workplace import Workplace

LAST_WORDS_S = 5.0
ABORT_GRACE_S = 1.0


class Drain:
    """One worker's end. Leases are renewed until the last handler has ended."""

    def __init__(self, place: Workplace, parts: Parts) -> None:
        self._place = place
        self._parts = parts
        self.released = 0
        self.abandoned = 0

    async def run(
        self,
        claiming: asyncio.Task[Any],
        others: list[asyncio.Task[Any]],
        asked: asyncio.Event,
        now: asyncio.Event,
    ) -> None:
        """Go through all of it; `now` cuts the handlers short, a cancellation gives them up."""
        try:
            await self._let_work_end(claiming, asked, now)
        except BaseException:
            await self._parts.slots.abandon()
            raise
        finally:
            await self._leave([claiming, *others])

    async def _let_work_end(
        self, claiming: asyncio.Task[Any], asked: asyncio.Event, now: asyncio.Event
    ) -> None:
        clock, parts = self._place.clock, self._parts
        parts.claimer.stop()
        self._give_back_unstarted()
        await all_ended(clock, [claiming], self._place.options.statement_timeout_ms / 1000)
        # A claim that was under way may have brought something.
        self._give_back_unstarted()
        await self._let_handlers_have_their_time(asked)
        await self._let_handlers_end(now)
        await clock.wait(parts.outcomes.all_settled, LAST_WORDS_S)

    async def _leave(self, loops: list[asyncio.Task[Any]]) -> None:
        """End the loops that nobody needs any more; whoever went on renewing would keep jobs from everybody."""
        for task in loops:
            task.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await self._part_from_companions()
        self.abandoned = self._count_abandoned()
        await self._close()

    def _give_back_unstarted(self) -> None:
        """Give back what no slot has started, without costing an attempt."""
        parts = self._parts
        unstarted = parts.backlog.close() + parts.quarantine.close()
        self.released += parts.office.give_back(unstarted)

    async def _let_handlers_have_their_time(self, asked: asyncio.Event) -> None:
        """Wait for handlers that have a time of their own, unless the worker is asked to stop meanwhile."""
        slots, clock = self._parts.slots, self._place.clock
        if slots.all_end_at == math.inf:
            return
        ended = asyncio.create_task(slots.finished(None))
        stopped = asyncio.create_task(asked.wait())
        ended.add_done_callback(lambda _: stopped.cancel())
        await all_ended(clock, [stopped], max(0.0, slots.all_end_at - clock.monotonic()))
        if not ended.done() and not asked.is_set():
            # They were told just now; those that obey are not to be told of a shutdown as well.
            await all_ended(clock, [ended], ABORT_GRACE_S)
        for task in (ended, stopped):
            task.cancel()
        await asyncio.gather(ended, stopped, return_exceptions=True)

    async def _let_handlers_end(self, now: asyncio.Event) -> None:
        """Wait for the running handlers up to the shutdown timeout, then tell them to stop, then give them up."""
        slots, clock = self._parts.slots, self._place.clock
        ended = asyncio.create_task(slots.finished(None))
        hurried = asyncio.create_task(now.wait())
        ended.add_done_callback(lambda _: hurried.cancel())
        is_late = clock.monotonic() >= slots.all_end_at
        shutdown_s = self._place.timings.shutdown_ms / 1000
        # Those that do not end by themselves have their last moment within the timeout, not after it.
        grace_s = min(ABORT_GRACE_S, shutdown_s / 4)
        await all_ended(clock, [hurried], 0.0 if is_late else shutdown_s - grace_s)
        if not ended.done():
            slots.interrupt()
            if not await all_ended(clock, [ended], grace_s or ABORT_GRACE_S):
                await slots.abandon()
        for task in (ended, hurried):
            task.cancel()
        await asyncio.gather(ended, hurried, return_exceptions=True)

    async def _part_from_companions(self) -> None:
        """End the heartbeat last; what it cannot give back in time is left to lease expiry."""
        parts = self._parts
        ended = asyncio.create_task(parts.host.ended())
        parts.host.call(parts.companions.stop)
        if not await all_ended(self._place.clock, [ended], LAST_WORDS_S):
            parts.host.call(parts.companions.cancel)
        await asyncio.gather(ended, return_exceptions=True)

    def _count_abandoned(self) -> int:
        """Count what is still leased in our name, or still runs."""
        attempts = set(self._place.holdings.attempts())
        lost_claims = 1 if self._place.holdings.has_unanswered else 0
        slots = self._parts.slots
        return len(attempts | slots.running | slots.abandoned) + lost_claims

    async def _close(self) -> None:
        place, parts = self._place, self._parts
        await parts.hints.close()
        await parts.completer.free()
        try:
            await parts.links["complete"].run(
                place.store.workers.stop(place.id, counters_of(place))
            )
        except Exception as error:
            place.trouble.note("complete", error)
        for purpose in OWN_LINKS:
            await parts.links[purpose].close()
        await parts.processes.close()
        parts.threads.shutdown(wait=False, cancel_futures=True)
