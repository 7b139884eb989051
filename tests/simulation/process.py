"""A simulated process: a real worker with its loop and its heartbeat's, to be paused, killed or asked to end."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from holdfast.core.lease import Lease
from holdfast.notify.base import Hint, OnHint, SendCounts
from holdfast.scheduler.assembly import Assembly
from holdfast.scheduler.background import Background
from holdfast.settings import load_settings
from holdfast.worker import worker_context
from holdfast.worker.options import WorkerOptions
from holdfast.worker.wakes import WorkerThreads
from holdfast.worker.worker import Worker
from tests.simulation import workload
from tests.simulation.consumers import ConsumerProcess
from tests.simulation.history import History
from tests.simulation.plan import Plan
from tests.simulation.server import Server, SimulatedDatabase
from tests.simulation.world import SimulatedClock, SimulatedLoop, World

LEASE_S = 2.0
SHUTDOWN_S = 2.0
OPTIONS = WorkerOptions(
    lease=Lease(LEASE_S),
    heartbeat_ms=660,
    reaper_interval_ms=1_200,
    idle_min_ms=800,
    idle_max_ms=2_000,
    idle_jitter_ms=100,
    poll_ms=2_000,
    shutdown_ms=int(SHUTDOWN_S * 1_000),
)
SETTINGS = load_settings({"WORKER_BUSY_LOOP_DELAY_MS": "600"})


class SimulatedThreads(WorkerThreads):
    """The background is a loop of the world's, not a thread."""

    loop: SimulatedLoop | None = None
    """That of the process whose worker is being made."""

    def __init__(self) -> None:
        super().__init__()
        assert SimulatedThreads.loop is not None
        self._given = SimulatedThreads.loop

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        self._background = self._given
        self._main = self._given.create_task(self._run_there(main))

    async def _run_there(self, main: Coroutine[Any, Any, None]) -> None:
        try:
            await main
        except BaseException as error:
            self._error = error
        finally:
            self.to_loop(self._ended.set)

    async def wait_ended(self) -> None:
        await self._ended.wait()
        if self._error is not None:
            raise self._error


@contextmanager
def threads_on(loop: SimulatedLoop) -> Iterator[None]:
    """Have workers that are made in this block use a loop of the world for their background."""
    SimulatedThreads.loop = loop
    with mock.patch.object(worker_context, "WorkerThreads", SimulatedThreads):
        yield
    SimulatedThreads.loop = None


class Hints:
    """Carries hints between processes: late, out of order, or not at all; those of one commit travel together."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random.Random(f"hints {world.seed}")
        self._listeners: dict[int, tuple[SimulatedLoop, OnHint]] = {}
        self._next = 0
        self.deaf_until = 0.0

    counts = SendCounts()

    def send(self, hints: Sequence[Hint]) -> None:
        if self._world.now < self.deaf_until:
            return
        for loop, on_hint in self._listeners.values():
            if self._random.random() > 0.02:
                loop.call_later(self._random.expovariate(500), self._deliver, on_hint, hints)

    def listen(self, on_hint: OnHint) -> "HintListener":
        loop: Any = asyncio.get_running_loop()
        self._next += 1
        self._listeners[self._next] = (loop, on_hint)
        return HintListener(self, self._next)

    def close(self) -> None: ...

    @staticmethod
    def _deliver(on_hint: OnHint, hints: Sequence[Hint]) -> None:
        for each in hints:
            on_hint(each)

    def forget(self, number: int) -> None:
        """Call a listener no more."""
        self._listeners.pop(number, None)

    def forget_loop(self, loop: SimulatedLoop) -> None:
        """Call nobody on a loop any more."""
        gone = [number for number, (each, _) in self._listeners.items() if each is loop]
        for number in gone:
            self.forget(number)


class HintListener:
    """See `notify.base.Listener`."""

    alive = True
    reconnects = 0

    def __init__(self, hints: Hints, number: int) -> None:
        self._hints = hints
        self._number = number

    def wait_until_alive(self, timeout: float) -> bool:
        return True

    def close(self) -> None:
        self._hints.forget(self._number)


class Process:
    """One life of a process, from its start to its end."""

    def __init__(
        self, world: World, server: Server, hints: Hints, history: History, name: str, plan: Plan
    ) -> None:
        self.world = world
        self.name = name
        self.is_over = False
        self.is_stopping = False
        self.error: BaseException | None = None
        self._server = server
        self._hints = hints
        self.database = SimulatedDatabase(server, name, OPTIONS.claims)
        self._loop = world.loop(name)
        self._background = world.loop(f"{name} heartbeat")
        clock, observer = SimulatedClock(world, name), history.observer(name)

        def make_worker(*_: Any) -> Worker:
            return Worker(
                self.database,  # type: ignore[arg-type]
                {each.name: each for each in workload.app.registry if each.name in plan.types},
                replace(OPTIONS, name=name, slots=plan.slots),
                notifier=hints,
                observer=observer,
                targets=workload.app.targets,
                clock=clock,
            )

        self._readers = (
            ConsumerProcess(self.database, clock, history, name) if plan.events else None
        )
        self._work: Worker | Background
        with threads_on(self._background):
            if plan.has_cycles:
                self._work = Assembly(
                    self.database,  # type: ignore[arg-type]
                    SETTINGS,
                    make_worker,
                    tuple(workload.app.cycle_specs.values()),
                    notifier=hints,
                    observer=observer,
                    clock=clock,
                ).background()
            else:
                self._work = make_worker()
        self._task: asyncio.Task[Any] = self._loop.create_task(self._run())
        self._task.add_done_callback(self._note_end)
        world.note(f"{name} starts")

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work.run())
            if self._readers is not None:
                group.create_task(self._readers.run(self._hints))

    def _note_end(self, task: asyncio.Task[Any]) -> None:
        self.is_over = True
        self.world.note(f"{self.name} ends")
        if not task.cancelled() and task.exception() is not None:
            self.error = task.exception()

    def pause(self) -> None:
        """Stop it where it is, as SIGSTOP does."""
        self._loop.is_paused = self._background.is_paused = True

    def resume(self, call_later: Callable[..., Any]) -> None:
        """Let it go on, one of its threads a little before the other."""
        first, second = self._loop, self._background
        if self.world.random.random() < 0.3:
            first, second = second, first
        first.is_paused = False
        call_later(0, self._server.serve_waiting)
        call_later(self.world.random.uniform(0, 0.05), setattr, second, "is_paused", False)
        self.world.note(f"{self.name} goes on")

    @property
    def is_paused(self) -> bool:
        """Whether it is stopped."""
        return self._loop.is_paused

    def kill(self) -> None:
        """End it as SIGKILL does."""
        self.is_over = True
        for loop in (self._loop, self._background):
            self.world.retire(loop)
        self._hints.forget_loop(self._loop)
        self._server.disconnect(self.name)
        self.world.note(f"{self.name} is killed")

    def stop(self) -> None:
        """Ask it to end, as SIGTERM does."""
        self.is_stopping = True
        for each in (self._work, self._readers):
            if each is not None:
                self._loop.call_soon_threadsafe(each.stop)

    @property
    def errors(self) -> list[BaseException]:
        """Defects: what no handler and no fault explains."""
        found = [*self._loop.errors, *self._background.errors]
        return [*found, self.error] if self.error is not None else found
