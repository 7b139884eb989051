"""Runs suspects of the quarantine, each alone, so that its guilt can be shown."""

from __future__ import annotations

from holdfast.storage.database import Link
from holdfast.worker.attempt import Attempt, Backlog
from holdfast.worker.completer import Completer
from holdfast.worker.quarantine import Quarantine
from holdfast.worker.slots import Slots
from holdfast.worker.worker_context import WorkerContext


class SuspectRuns:
    """A loop over the suspects of a quarantine.

    A suspect starts when everything else that this worker held has ended and is recorded, and its lease says that it
    runs alone. If the others do not end in time, the suspect is given back and they go on for as long as they were kept
    waiting; after a suspect has run, they get their turn likewise.
    """

    def __init__(
        self,
        context: WorkerContext,
        link: Link,
        quarantine: Quarantine,
        slots: Slots,
        backlog: Backlog,
        completer: Completer,
    ) -> None:
        self._context = context
        self._link = link
        self._quarantine = quarantine
        self._slots = slots
        self._backlog = backlog
        self._completer = completer
        self._wait_s = 0.0

    async def run(self) -> None:
        """Start suspects until cancelled."""
        clock, quarantine = self._context.clock, self._quarantine
        while True:
            while quarantine.suspect is None:
                quarantine.changed.clear()
                await quarantine.changed.wait()
            arrived = clock.monotonic()
            await self._run_alone(quarantine.suspect, arrived)
            await self._pause(clock.monotonic() - arrived)

    async def _run_alone(self, suspect: Attempt, arrived: float) -> None:
        """Wait until a suspect is alone, have it run, and wait for its recorded end."""
        clock, quarantine = self._context.clock, self._quarantine
        wait_s = self._wait_s or suspect.policy.lease_ms / 1000
        while quarantine.is_waiting and not self._is_alone(suspect):
            left = arrived + wait_s - clock.monotonic()
            quarantine.changed.clear()
            if not await clock.wait(quarantine.changed, max(0.0, left)):
                self._wait_s = min(2 * wait_s, suspect.policy.timeout_ms / 1000)
                self._completer.release(quarantine.close())
                return
        self._wait_s = 0.0
        is_ours = quarantine.is_waiting and suspect.abort_reason is None
        if is_ours and not await self._isolate(suspect):
            self._completer.release(quarantine.close())
        if not quarantine.is_waiting:
            return
        quarantine.is_waiting = False
        # One that was aborted while it waited is given back by the slot that takes it.
        self._backlog.put([suspect])
        while suspect in self._context.held_leases.attempts():
            quarantine.changed.clear()
            await quarantine.changed.wait()
        quarantine.suspect = None

    def _is_alone(self, suspect: Attempt) -> bool:
        others = [each for each in self._context.held_leases.attempts() if each is not suspect]
        return not others and not self._slots.running

    async def _isolate(self, suspect: Attempt) -> bool:
        try:
            return await self._link.run(self._context.store.leases.isolate(suspect.claimed.token))
        except Exception as error:
            self._context.health.report_error(self._link.purpose, error)
            return False

    async def _pause(self, seconds: float) -> None:
        """Leave the worker to other jobs for a while, unless there is nothing else to do."""
        quarantine, claims = self._quarantine, self._context.wakes.claims
        quarantine.is_paused = True
        quarantine.idle.clear()
        claims.set_for_all()
        await self._context.clock.wait(quarantine.idle, seconds)
        quarantine.is_paused = False
        claims.set_for_all()
