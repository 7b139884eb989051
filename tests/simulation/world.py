"""One clock for many event loops: nothing happens at the same time, and what happens next is drawn from the seed.

A loop is a thread of a simulated process. It runs one turn at a time, while the world's clock is at rest; when no loop
has anything to do, the clock moves to the next timer. A process that is paused keeps its loops, which get no turn; one
that is killed never gets one again.
"""

import asyncio
import heapq
import math
import random
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
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


class Turn:
    """A callback that a loop is to make: `asyncio.Handle` without what only debugging needs."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "loop", "place")

    def __init__(
        self,
        loop: "SimulatedLoop",
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: Context | None,
        place: tuple[float, int] | None = None,
    ) -> None:
        self.loop = loop
        self.callback = callback
        self.args = args
        self.context = copy_context() if context is None else context
        self.place = place
        """When it is due, and how many timers there were before it; None if it is due at once."""
        self.is_cancelled = False

    def cancel(self) -> None:
        if not self.is_cancelled:
            self.is_cancelled = True
            if self.place is not None:
                self.loop.drop_cancelled()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        assert self.place is not None
        return self.place[0]


class SimulatedTask(asyncio.Task[Any]):
    """A task whose place in a set follows from when it was made, not from where it is in memory."""

    def __init__(self, coro: Any, *, loop: "SimulatedLoop", **options: Any) -> None:
        loop.world.tasks += 1
        self._number = loop.world.tasks
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.AbstractEventLoop):
    """An event loop that lives by the world's clock and gets its turns from it."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.is_paused = False
        self.is_dead = False
        self.errors: list[BaseException] = []
        self.next_at = math.inf
        """When it has something to do; long past if that is now."""
        self._ready: deque[Turn] = deque()
        self._timers: list[tuple[float, int, Turn]] = []
        self._count = 0

    def time(self) -> float:
        return self.world.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        return SimulatedTask(coro, loop=self, name=name or "task", context=context)

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

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not self.is_dead:
            self.errors.append(error)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Turn:
        turn = Turn(self, callback, args, context)
        if not self.is_dead:
            self._ready.append(turn)
            self.next_at = 0.0
        return turn

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Turn:
        when = self.world.now + delay
        self._count = count = self._count + 1
        turn = Turn(self, callback, args, context, (when, count))
        if not self.is_dead:
            heapq.heappush(self._timers, (when, count, turn))
            if when < self.next_at:
                self.next_at = when
        return turn

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Turn:
        return self.call_later(when - self.world.now, callback, *args, context=context)

    def drop_cancelled(self) -> None:
        """Wait for no timer that was cancelled."""
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
        if not self._ready:
            self.next_at = timers[0][0] if timers else math.inf

    def turn(self) -> None:
        """Run what is due."""
        ready, timers, now = self._ready, self._timers, self.world.now
        while timers and timers[0][0] < now:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            turn = ready.popleft()
            if turn.is_cancelled:
                continue
            try:
                turn.context.run(turn.callback, *turn.args)
            except Exception as error:
                self.call_exception_handler({"exception": error})
        if ready:
            self.next_at = 0.0
        else:
            self.drop_cancelled()


class World:
    """The clock, the loops and the randomness of one run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"world {seed}")
        self.seed = seed
        self.now = 1_000.0
        self.turns = 0
        self.tasks = 0
        self.loops: list[SimulatedLoop] = []
        self._retired: list[SimulatedLoop] = []
        self.spins: list[str] = []
        """Turns in which a loop did nothing but look at its clock."""
        self._looks = 0
        self._current: SimulatedLoop | None = None
        self.trace: list[str] = []

    def loop(self, name: str) -> SimulatedLoop:
        """Make a loop for a thread of a process."""
        made = SimulatedLoop(self, name)  # type: ignore[abstract]
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
            assert self._current is not None
            self.spins.append(f"{self._current.name} spins at {self.now - 1_000.0:.3f}")

    def note(self, text: str) -> None:
        """Write a line of the trace."""
        self.trace.append(f"{self.now - 1_000.0:.6f} {text}")

    def run_until(self, until: float, is_over: Callable[[], bool] | None = None) -> bool:
        """Let time pass until a time, or until something is so; return whether it is so. Raises: what a loop raises."""
        try:
            while is_over is None or not is_over():
                loop, at = self._next()
                if loop is None or at > until or self.turns >= MOST_TURNS:
                    self.now = max(self.now, until)
                    return is_over is not None and is_over()
                self.turns += 1
                self.now = at + TURN_S
                self._looks = 0
                if loop is not self._current:
                    self._current = loop
                    events._set_running_loop(loop)
                loop.turn()
            return True
        finally:
            events._set_running_loop(None)
            self._current = None

    def _next(self) -> tuple[SimulatedLoop | None, float]:
        """The loop that has something to do first, and when; one of them if there are several."""
        now, earliest = self.now, math.inf
        first: SimulatedLoop | None = None
        ready: list[SimulatedLoop] | None = None
        for each in self.loops:
            at = each.next_at
            if at <= earliest and not each.is_paused:
                if at < now:
                    at = now
                if at < earliest:
                    earliest, first, ready = at, each, None
                elif ready is not None:
                    ready.append(each)
                elif first is not None:
                    ready = [first, each]
        if ready is not None:
            # `random.choice` would cost more than the turn.
            first = ready[int(self.random.random() * len(ready))]
        return first, earliest


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
