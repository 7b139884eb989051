"""One clock for many event loops: nothing happens at the same time, and what happens next is drawn from the seed.

A loop is a thread of a simulated process. It runs one turn at a time, while the world's clock is at rest; when no loop
has anything to do, the clock moves to the next timer. A process that is paused keeps its loops, which get no turn; one
that is killed never gets one again.
"""

import asyncio
import heapq
import random
from asyncio import events
from collections.abc import Callable
from typing import Any

from holdfast.worker.clock import SystemClock

EPOCH_US = 1_800_000_000_000_000
"""What the database's clock says at the beginning: microseconds since 1970."""
TURN_S = 0.000_02
"""How long a turn of a loop takes."""
LOOK_S = 0.000_000_5
MOST_LOOKS = 2_000
"""So often a loop may look at the clock in one turn."""
MOST_TURNS = 300_000
"""A run that needs more goes round without end; most need ten thousand."""


class _NoSelector:
    """A loop without files or sockets never waits for them."""

    def select(self, timeout: float | None) -> list[Any]:
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop that lives by the world's clock and gets its turns from it."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__()
        self.world = world
        self.name = name
        self.is_paused = False
        self.is_dead = False
        self.errors: list[BaseException] = []
        # What `BaseEventLoop` asks of its subclasses.
        self._selector = _NoSelector()
        self._clock_resolution = 0.0
        self.set_exception_handler(self._note_error)

    def time(self) -> float:
        return self.world.now

    def _process_events(self, event_list: list[Any]) -> None: ...

    def _write_to_self(self) -> None: ...

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """There are no threads here: a call that blocks takes no time."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _note_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not self.is_dead:
            self.errors.append(error)

    @property
    def next_at(self) -> float | None:
        """When it has something to do; None while it has not."""
        ready: Any = self._ready  # type: ignore[attr-defined]
        if ready:
            return self.world.now
        scheduled: Any = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        return scheduled[0]._when if scheduled else None

    def turn(self) -> None:
        """Run what is due."""
        events._set_running_loop(self)
        try:
            self._run_once()  # type: ignore[attr-defined]
        finally:
            events._set_running_loop(None)

    def call_soon(self, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        if self.is_dead:
            return events.Handle(args[0], args[1:], self)
        return super().call_soon(*args, **options)

    call_soon_threadsafe = call_soon  # type: ignore[assignment]


class World:
    """The clock, the loops and the randomness of one run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"world {seed}")
        self.seed = seed
        self.now = 1_000.0
        self.turns = 0
        self.loops: list[SimulatedLoop] = []
        self._retired: list[SimulatedLoop] = []
        self.spins: list[str] = []
        """Turns in which a loop did nothing but look at its clock."""
        self._looks = 0
        self._running = ""
        self.trace: list[str] = []

    def loop(self, name: str) -> SimulatedLoop:
        """Make a loop for a thread of a process."""
        made = SimulatedLoop(self, name)
        self.loops.append(made)
        return made

    def retire(self, loop: SimulatedLoop) -> None:
        """Give a loop no turn any more; it is kept, so that nothing of it is tidied up before the run is over."""
        loop.is_dead = True
        self.loops.remove(loop)
        self._retired.append(loop)

    @property
    def instant(self) -> int:
        """The database's clock: microseconds since 1970, in whole milliseconds as SQLite has them."""
        return EPOCH_US + int((self.now - 1_000.0) * 1_000) * 1_000

    def look(self) -> None:
        """Let the moment pass that it takes to look at a clock."""
        self.now += LOOK_S
        self._looks += 1
        if self._looks == MOST_LOOKS:
            self.spins.append(f"{self._running} spins at {self.now - 1_000.0:.3f}")

    def note(self, text: str) -> None:
        """Write a line of the trace."""
        self.trace.append(f"{self.now - 1_000.0:.6f} {text}")

    def run_until(self, is_over: Callable[[], bool], until: float) -> bool:
        """Let time pass until something is so, or until a time; return whether it is so. Raises: what a loop raises."""
        while not is_over():
            at, ready = self._next()
            if at is None or at > until or self.turns >= MOST_TURNS:
                self.now = max(self.now, until)
                return is_over()
            if at > self.now:
                self.now = at
            loop = ready[0] if len(ready) == 1 else self.random.choice(ready)
            self.turns += 1
            self.now += TURN_S
            self._looks, self._running = 0, loop.name
            loop.turn()
        return True

    def _next(self) -> tuple[float | None, list[SimulatedLoop]]:
        """Return the earliest time at which a loop has something to do, and the loops that have by then."""
        now, earliest = self.now, None
        ready: list[SimulatedLoop] = []
        for each in self.loops:
            if each.is_paused:
                continue
            at = each.next_at
            if at is None:
                continue
            at = max(at, now)
            if earliest is None or at < earliest:
                earliest, ready = at, [each]
            elif at == earliest:
                ready.append(each)
        return earliest, ready


class SimulatedClock(SystemClock):
    """What a simulated process takes for its clock: it began at another time than that of others, and jitter is drawn
    from the seed.
    """

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        own = random.Random(f"clock {world.seed} {name}")
        self._offset = own.uniform(0, 100_000)
        self.random = own.random

    def monotonic(self) -> float:
        """A little later each time: who asks in a loop until it is late enough gets there, and is noticed."""
        self._world.look()
        return self._world.now + self._offset
