"""The quarantine of a job whose workers keep dying: it runs alone, so that others do not pay for it."""

from __future__ import annotations

import asyncio

from holdfast.core.retry import suspected_from
from holdfast.worker.attempt import Attempt
from holdfast.worker.worker_context import WorkerContext


class Quarantine:
    """Holds at most one suspect at a time; while it does, nothing new is claimed. On the loop."""

    def __init__(self, context: WorkerContext) -> None:
        self._suspected = suspected_from(context.options.poison_limit)
        # It waits or runs, so nothing may start beside it.
        self.suspect: Attempt | None = None
        self.is_waiting = False
        self.changed = context.wakes.suspects
        self.idle = asyncio.Event()
        # Whether it is the turn of the other jobs.
        self.is_paused = False

    def is_suspect(self, attempt: Attempt) -> bool:
        """Whether an attempt has to run alone."""
        return attempt.claimed.crashes >= self._suspected

    def put(self, attempt: Attempt) -> None:
        """Hold a suspect."""
        self.suspect, self.is_waiting = attempt, True
        self.changed.set()

    def recheck(self) -> None:
        """Check whether the suspect is alone by now, or gone itself: something has ended."""
        if self.suspect is not None:
            self.changed.set()

    def note_idle(self) -> bool:
        """Note that there is nothing else to do; return whether that ends the others' turn."""
        was_paused, self.is_paused = self.is_paused, False
        self.idle.set()
        return was_paused

    def close(self) -> list[Attempt]:
        """Return the suspect that has not started, if there is one."""
        attempt, self.suspect = self.suspect, None
        was_waiting, self.is_waiting = self.is_waiting, False
        return [attempt] if attempt is not None and was_waiting else []
