"""Runs a job alone whose workers keep dying, so that its neighbours pay for nothing and its guilt can be shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.core.retry import suspected_from
from holdfast.storage.database import Link
from holdfast.worker.attempt import Attempt
from holdfast.worker.context import Workplace
from holdfast.worker.slots import Backlog

PURPOSE = "complete"


class Quarantine:
    """At most one suspect at a time. On the loop.

    While one is here nothing new is claimed. It begins when everything else that this worker held has ended and is
    recorded, and after its lease says so. What does not end in time goes first: the suspect is given back, and the
    others go on for as long as they were kept waiting. After a suspect has run, they have their turn likewise.
    """

    def __init__(
        self,
        place: Workplace,
        link: Link,
        backlog: Backlog,
        running: Callable[[], set[Attempt]],
        look: Callable[[], None],
    ) -> None:
        """`running` are the attempts whose handlers have not returned; `look` has suspects looked for again."""
        self._place = place
        self._link = link
        self._backlog = backlog
        self._running = running
        self._look = look
        self._suspected = suspected_from(place.options.poison_limit)
        self._suspect: Attempt | None = None
        self._waits = False
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._is_resting = False
        self._patience = 0.0
        self.give_back: Callable[[list[Attempt]], object]

    def is_suspect(self, attempt: Attempt) -> bool:
        """Whether an attempt is to run alone."""
        return attempt.claimed.crashes >= self._suspected

    @property
    def is_occupied(self) -> bool:
        """Whether a suspect waits or runs, so that nothing may begin beside it."""
        return self._suspect is not None

    @property
    def is_resting(self) -> bool:
        """Whether it is the others' turn."""
        return self._is_resting

    def put(self, attempt: Attempt) -> None:
        """Take a suspect in."""
        self._suspect, self._waits = attempt, True
        self._changed.set()

    def look_again(self) -> None:
        """See whether the suspect is alone by now, or gone itself: something has ended."""
        if self._suspect is not None:
            self._changed.set()

    def idle(self) -> bool:
        """Note that there is nothing else to do; say whether that ends the others' turn."""
        was_resting, self._is_resting = self._is_resting, False
        self._idle.set()
        return was_resting

    def close(self) -> list[Attempt]:
        """Return the suspect that has not begun, if there is one."""
        attempt, self._suspect = self._suspect, None
        waited, self._waits = self._waits, False
        return [attempt] if attempt is not None and waited else []

    async def run(self) -> None:
        """Let suspects begin for ever."""
        clock = self._place.clock
        while True:
            while self._suspect is None:
                self._changed.clear()
                await self._changed.wait()
            arrived = clock.monotonic()
            await self._attend(self._suspect, arrived)
            await self._rest(clock.monotonic() - arrived)

    async def _attend(self, suspect: Attempt, arrived: float) -> None:
        """See a suspect through, from its arrival until nothing of it is left here."""
        clock = self._place.clock
        patience = self._patience or suspect.terms.lease_ms / 1000
        while self._waits and not self._is_alone(suspect):
            left = arrived + patience - clock.monotonic()
            self._changed.clear()
            if not await clock.wait(self._changed, max(0.0, left)):
                self._patience = min(2 * patience, suspect.terms.timeout_ms / 1000)
                self._give_back()
                return
        self._patience = 0.0
        if self._waits and suspect.abort_reason is None and not await self._isolate(suspect):
            self._give_back()
        if not self._waits:
            return
        self._waits = False
        # One that was told to stop while it waited is given back by the slot that takes it.
        self._backlog.put([suspect])
        while suspect in self._place.holdings.attempts():
            self._changed.clear()
            await self._changed.wait()
        self._suspect = None

    def _is_alone(self, suspect: Attempt) -> bool:
        others = [each for each in self._place.holdings.attempts() if each is not suspect]
        return not others and not self._running()

    async def _isolate(self, suspect: Attempt) -> bool:
        try:
            return await self._link.run(self._place.store.leases.isolate(suspect.claimed.token))
        except Exception as error:
            self._place.trouble.note(PURPOSE, error)
            return False

    def _give_back(self) -> None:
        """Give the suspect back, unless a drain was quicker."""
        self.give_back(self.close())

    async def _rest(self, seconds: float) -> None:
        """Leave the worker to the others for a while, unless there is nothing else to do."""
        self._is_resting = True
        self._idle.clear()
        self._look()
        await self._place.clock.wait(self._idle, seconds)
        self._is_resting = False
        self._look()
