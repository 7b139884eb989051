"""A clock that stands still until a test moves it; several event loops in several threads may live by it."""

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass

from tests.support.until import until


@dataclass(eq=False, slots=True)
class _Alarm:
    """Somebody who waits for a time, and where they are to be woken."""

    seconds: float
    due: float
    loop: asyncio.AbstractEventLoop
    rings: asyncio.Event

    def ring(self) -> None:
        # A loop that has ended in the meantime has nobody left who waits.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.rings.set)


class ManualClock:
    """See `holdfast.worker.clock.Clock`."""

    def __init__(self, now: float = 1_000.0, random: float = 0.0) -> None:
        self._now = now
        self._random = random
        self._lock = threading.Lock()
        self._alarms: list[_Alarm] = []
        self._read: dict[asyncio.AbstractEventLoop, float] = {}

    def monotonic(self) -> float:
        now = self._now
        # Whoever works out from this how long to wait begins to wait at this time, wherever others move it meanwhile.
        with suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            self._read[loop] = now
            loop.call_soon(self._read.pop, loop, None)
        return now

    def random(self) -> float:
        return self._random

    async def sleep(self, seconds: float) -> None:
        await self.wait(asyncio.Event(), seconds)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        if event.is_set():
            return True
        if seconds is None:
            return await event.wait()
        with self._lock:
            loop = asyncio.get_running_loop()
            due = self._read.get(loop, self._now) + seconds
            alarm = _Alarm(seconds, due, loop, asyncio.Event())
            self._alarms.append(alarm)
            if due <= self._now:
                alarm.rings.set()
        waiting = [asyncio.ensure_future(each.wait()) for each in (event, alarm.rings)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            with self._lock:
                self._alarms.remove(alarm)
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        return event.is_set()

    async def until_somebody_sleeps(self, seconds: float) -> None:
        """Wait until somebody waits for exactly so long, so that moving the clock is not too early for them."""
        try:
            await until(lambda: self.is_awaited(seconds))
        except TimeoutError:
            waiting = [each.seconds for each in self._alarms]
            raise AssertionError(f"nobody waits for {seconds} s, only for {waiting}") from None

    def is_awaited(self, seconds: float) -> bool:
        """Say whether somebody waits for exactly so long."""
        with self._lock:
            # One that has rung already belongs to a sleeper who is about to wake.
            return any(
                abs(each.seconds - seconds) < 1e-6 and each.due > self._now for each in self._alarms
            )

    def advance(self, seconds: float) -> None:
        """Let time pass and wake whoever waited for it. From any thread."""
        with self._lock:
            self._now += seconds
            due = [each for each in self._alarms if each.due <= self._now]
        for alarm in due:
            alarm.ring()

    def jump(self, seconds: float) -> None:
        """Let time pass as a paused process sees it when it wakes: whoever waits has not noticed yet."""
        with self._lock:
            self._now += seconds
