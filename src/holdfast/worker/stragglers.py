"""Writes the outcomes that a flush cannot take: awaited jobs, successors with blockers, locked rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from holdfast.core.errors import DatabaseUnreachable
from holdfast.core.model import Held, Stand
from holdfast.ops.blockers import FanIn
from holdfast.ops.finish import finish_attempts
from holdfast.storage.database import Link
from holdfast.worker.outcomes import (
    Outcomes,
    Pending,
    in_portions,
    is_about_the_data,
    replacement,
)
from holdfast.worker.workplace import Workplace

PURPOSE = "fan-in"
RETRY_MIN_S = 0.05
RETRY_MAX_S = 2.0
TOGETHER = 100
"""Awaited jobs that end in one transaction: those who wait for many of them are locked once for all."""


class Straggler(msgspec.Struct):
    """An outcome with the time of its next try; alone when a try in company did not write it."""

    pending: Pending
    due_at: float
    delay: float = 0.0
    is_alone: bool = False


class Stragglers:
    """On a connection of its own, so that waiting for locks delays nobody else's outcomes.

    At first many go together; what that does not write is tried in a transaction each.
    """

    def __init__(
        self,
        place: Workplace,
        link: Link,
        outcomes: Outcomes,
        opened: Callable[[FanIn], None],
    ) -> None:
        self._place = place
        self._link = link
        self._outcomes = outcomes
        self._opened = opened
        self._waiting: list[Straggler] = []
        self._wake = asyncio.Event()

    def add(self, pending: Pending) -> None:
        """Have an outcome written soon."""
        self._waiting.append(Straggler(pending, self._place.clock.monotonic()))
        self._wake.set()

    async def run(self) -> None:
        """Write for ever; cancelled by the worker when all is written."""
        clock = self._place.clock
        while True:
            await clock.wait(self._wake, self._until_next())
            self._wake.clear()
            now = clock.monotonic()
            due = [each for each in self._waiting if each.due_at <= now]
            await self._try_together([each for each in due if not each.is_alone])
            for straggler in due:
                if straggler.is_alone and not straggler.pending.is_settled:
                    await self._try(straggler)
            self._waiting = [each for each in self._waiting if not each.pending.is_settled]

    def _until_next(self) -> float | None:
        if not self._waiting:
            return None
        return max(0.0, min(each.due_at for each in self._waiting) - self._place.clock.monotonic())

    async def _try_together(self, due: list[Straggler]) -> None:
        # Two attempts of one job, an old and a new one, never share a statement.
        by_job = {each.pending.finish.id: each for each in due}
        for each in due:
            each.is_alone = by_job[each.pending.finish.id] is not each
        for portion in in_portions((each.pending for each in by_job.values()), TOGETHER):
            await self._write_together([by_job[each.finish.id] for each in portion])

    async def _write_together(self, batch: list[Straggler]) -> None:
        pendings = [each.pending for each in batch]
        op = finish_attempts(self._place.store, [each.finish for each in pendings])
        try:
            report = await self._link.run_atomic(op)
        except Exception as error:
            for each in batch:
                each.pending.unsure = True
                if isinstance(error, DatabaseUnreachable):
                    self._failed(each, error)
                else:
                    each.is_alone = True
            return
        hits = {each.id for each in report.accepted}
        self._outcomes.end([each for each in pendings if each.finish.id in hits])
        self._opened(report.fan_in)
        for each in batch:
            each.is_alone = not each.pending.is_settled

    async def _try(self, straggler: Straggler) -> None:
        pending = straggler.pending
        try:
            stand = await self._write(pending)
        except Exception as error:
            pending.unsure = True
            self._failed(straggler, error)
            return
        self._place.trouble.over(PURPOSE)
        if stand is None:
            return
        if stand.standing == "held":
            self._later(straggler)
        else:
            self._outcomes.settle(pending, stand)

    async def _write(self, pending: Pending) -> Stand | None:
        """Try once; return how the job stands when it could not be written."""
        store, finish = self._place.store, pending.finish
        report = await self._link.run_atomic(finish_attempts(store, [finish]))
        if report.accepted:
            self._outcomes.end([pending])
            self._opened(report.fan_in)
            return None
        (stand,) = await self._link.run(store.jobs.stand([Held(finish.id, finish.token)]))
        return stand

    def _failed(self, straggler: Straggler, error: Exception) -> None:
        if is_about_the_data(error) and not straggler.pending.is_replacement:
            straggler.pending = replacement(straggler.pending, error)
            return
        self._place.trouble.note(PURPOSE, error)
        self._later(straggler)

    def _later(self, straggler: Straggler) -> None:
        """Locked by somebody's transaction, or no database: try again, less often each time."""
        clock = self._place.clock
        straggler.delay = min(RETRY_MAX_S, max(RETRY_MIN_S, straggler.delay * 2))
        straggler.due_at = clock.monotonic() + straggler.delay * (0.5 + clock.random() / 2)
