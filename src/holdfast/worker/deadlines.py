"""Stops what ran out of time and what can no longer be sure of its lease; hosted by the heartbeat's thread."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from operator import attrgetter
from typing import Protocol

from holdfast.core.model import Finish
from holdfast.storage.database import Link
from holdfast.worker.attempt import AbortReason, Attempt
from holdfast.worker.holdings import HeldClaim
from holdfast.worker.judge import judge_timeout
from holdfast.worker.workplace import Workplace

PURPOSE = "heartbeat"


class Told(Protocol):
    """Whom the deadlines tell what they did; called on their own thread."""

    def lost(self, attempt: Attempt, reason: AbortReason) -> None: ...
    def interrupt(self, attempt: Attempt) -> None: ...
    def timed_out(self, attempt: Attempt, finish: Finish, recorded: bool) -> None: ...


class Deadlines:
    """Without the database each claim lives to its local deadline, which comes before its lease can end.

    It never waits for the database itself: a statement that hangs must not keep a deadline from being seen.
    """

    def __init__(
        self, place: Workplace, link: Link, told: Told, call: Callable[[Callable[[], object]], None]
    ) -> None:
        """`call` has something done on the loop that hosts this, from any thread."""
        self._place = place
        self._link = link
        self._told = told
        self._call = call
        self._wake = asyncio.Event()
        self._stopping = False
        self._next = math.inf
        self._recording: set[asyncio.Task[None]] = set()

    def expect(self, at: float) -> None:
        """Be sure to look at this time. From any thread; costs nothing when an earlier look is planned."""
        if at < self._next:
            self._call(self._wake.set)

    def stop(self) -> None:
        """End soon. Called on its own loop."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Watch until told to stop."""
        clock = self._place.clock
        while not self._stopping:
            self._wake.clear()
            # Whatever begins while we look is announced, and wakes us.
            self._next = math.inf
            self._next = self._enforce(clock.monotonic())
            wait = None if self._next == math.inf else max(0.0, self._next - clock.monotonic())
            await clock.wait(self._wake, wait)
        if self._recording:
            await asyncio.gather(*self._recording)

    def _enforce(self, now: float) -> float:
        """Stop what is over by now; return when to look again."""
        coming = [math.inf]
        late: list[Attempt] = []
        for claim, held in self._place.holdings.by_claim():
            attempts = [each for each in held if not each.is_ending]
            coming.append(self._check_lease(claim, attempts, now))
            for attempt in attempts:
                if attempt.timeout_at is None:
                    continue
                if now < attempt.timeout_at:
                    coming.append(attempt.timeout_at)
                elif attempt.take_ending("heartbeat"):
                    late.append(attempt)
        if late:
            self._time_out(late, now)
        return min(coming)

    def _check_lease(self, claim: HeldClaim, attempts: list[Attempt], now: float) -> float:
        """Stop what a claim holds once its lease may end; return when that is."""
        unaware = [each for each in attempts if each.abort_reason is None]
        if not unaware:
            return math.inf
        if now < claim.deadline:
            return claim.deadline
        # Those that wait come first: a slot whose handler is stopped begins the next of them at once.
        for attempt in sorted(unaware, key=attrgetter("is_started")):
            self._told.lost(attempt, "error")
        return math.inf

    def _time_out(self, late: list[Attempt], now: float) -> None:
        """Record timed-out attempts here, because their loop may be blocked by the very handler."""
        finishes: dict[Attempt, Finish] = {}
        for attempt in late:
            attempt.abort("timeout", now)
            self._told.interrupt(attempt)
            jitter = self._place.clock.random()
            finishes[attempt] = judge_timeout(attempt, self._place.id, now, jitter)
        task = asyncio.create_task(self._record(finishes))
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)

    async def _record(self, finishes: dict[Attempt, Finish]) -> None:
        recorded: set[str] = set()
        try:
            done = await self._link.run(self._place.store.jobs.finish(list(finishes.values())))
            recorded = {each.id for each in done}
        except Exception as error:
            self._place.trouble.note(PURPOSE, error)
        for attempt, finish in finishes.items():
            self._told.timed_out(attempt, finish, attempt.claimed.id in recorded)
