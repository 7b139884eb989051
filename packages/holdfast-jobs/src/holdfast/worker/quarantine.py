"""Runs a job whose workers keep dying alone, so that others do not pay for it and its guilt can be shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.core.retry import suspected_from
from holdfast.storage.database import Link
from holdfast.worker.attempt import Attempt, Backlog
from holdfast.worker.worker_context import WorkerContext


class Quarantine:
    """Holds at most one suspect at a time. On the loop.

    While it holds one, nothing new is claimed. The suspect starts when everything else that this worker held has ended
    and is recorded, and its lease says that it runs alone. If the others do not end in time, the suspect is given back
    and they go on for as long as they were kept waiting; after a suspect has run, they get their turn likewise.
    """

    def __init__(
        self,
        context: WorkerContext,
        link: Link,
        backlog: Backlog,
        running: Callable[[], set[Attempt]],
        release: Callable[[list[Attempt]], object],
        claim_suspects: Callable[[], None],
    ) -> None:
        """`running` returns the attempts whose handlers have not returned."""
        self._context = context
        self._link = link
        self._backlog = backlog
        self._running = running
        self._release = release
        self._claim_suspects = claim_suspects
        self._suspected = suspected_from(context.options.poison_limit)
        self._suspect: Attempt | None = None
        self._is_waiting = False
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        # Whether it is the turn of the other jobs.
        self.is_paused = False
        self._wait_s = 0.0

    def is_suspect(self, attempt: Attempt) -> bool:
        """Whether an attempt has to run alone."""
        return attempt.claimed.crashes >= self._suspected

    @property
    def is_occupied(self) -> bool:
        """Whether a suspect waits or runs, so that nothing may start beside it."""
        return self._suspect is not None

    def put(self, attempt: Attempt) -> None:
        """Hold a suspect."""
        self._suspect, self._is_waiting = attempt, True
        self._changed.set()

    def recheck(self) -> None:
        """Check whether the suspect is alone by now, or gone itself: something has ended."""
        if self._suspect is not None:
            self._changed.set()

    def note_idle(self) -> bool:
        """Note that there is nothing else to do; return whether that ends the others' turn."""
        was_paused, self.is_paused = self.is_paused, False
        self._idle.set()
        return was_paused

    def close(self) -> list[Attempt]:
        """Return the suspect that has not started, if there is one."""
        attempt, self._suspect = self._suspect, None
        was_waiting, self._is_waiting = self._is_waiting, False
        return [attempt] if attempt is not None and was_waiting else []

    async def run(self) -> None:
        """Start suspects until cancelled."""
        clock = self._context.clock
        while True:
            while self._suspect is None:
                self._changed.clear()
                await self._changed.wait()
            arrived = clock.monotonic()
            await self._run_alone(self._suspect, arrived)
            await self._pause(clock.monotonic() - arrived)

    async def _run_alone(self, suspect: Attempt, arrived: float) -> None:
        """Wait until a suspect is alone, have it run, and wait for its recorded end."""
        clock = self._context.clock
        wait_s = self._wait_s or suspect.policy.lease_ms / 1000
        while self._is_waiting and not self._is_alone(suspect):
            left = arrived + wait_s - clock.monotonic()
            self._changed.clear()
            if not await clock.wait(self._changed, max(0.0, left)):
                self._wait_s = min(2 * wait_s, suspect.policy.timeout_ms / 1000)
                self._release(self.close())
                return
        self._wait_s = 0.0
        if self._is_waiting and suspect.abort_reason is None and not await self._isolate(suspect):
            self._release(self.close())
        if not self._is_waiting:
            return
        self._is_waiting = False
        # One that was aborted while it waited is given back by the slot that takes it.
        self._backlog.put([suspect])
        while suspect in self._context.held_leases.attempts():
            self._changed.clear()
            await self._changed.wait()
        self._suspect = None

    def _is_alone(self, suspect: Attempt) -> bool:
        others = [each for each in self._context.held_leases.attempts() if each is not suspect]
        return not others and not self._running()

    async def _isolate(self, suspect: Attempt) -> bool:
        try:
            return await self._link.run(self._context.store.leases.isolate(suspect.claimed.token))
        except Exception as error:
            self._context.health.report_error(self._link.purpose, error)
            return False

    async def _pause(self, seconds: float) -> None:
        """Leave the worker to other jobs for a while, unless there is nothing else to do."""
        self.is_paused = True
        self._idle.clear()
        self._claim_suspects()
        await self._context.clock.wait(self._idle, seconds)
        self.is_paused = False
        self._claim_suspects()
