"""Starts what is due of an application's schedules, in its workers and in ticks."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.errors import HoldfastError
from holdfast.core.events import EventSpec, wants_of
from holdfast.core.instants import Instant
from holdfast.notify.base import LOOK_EVERYWHERE, Hint, Listener
from holdfast.scheduler.runner import Concurrency, RunnerContext, RunnerReport
from holdfast.settings import load_some
from holdfast.storage.operation import Op, at
from holdfast.worker.wakes import call_on
from holdfast_schedules.commands import SCHEDULE_HINT
from holdfast_schedules.events import (
    SCHEDULE_FIRED,
    SCHEDULE_LAG,
    SCHEDULE_REFUSED,
    SCHEDULES_TRIMMED,
)
from holdfast_schedules.firing import Fired, fire_due
from holdfast_schedules.schedule_store import SCHEDULES, Head
from holdfast_schedules.schedules import declared_schedules

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.settings import Settings

T = TypeVar("T")

log = logging.getLogger("holdfast.schedules")

TRIM_S = 60.0
TRIM_BATCH = 5_000
TRIM_MAX_BATCHES = 50
AFTER_ERROR_S = 1.0
LOCKED_S = 0.25
COALESCE_S = 0.05
"""Hints of many commits in a row are worth one look."""

_SETTINGS = tuple(f"HOLDFAST_SCHEDULES_{name}" for name in ("POLL_MS", "BATCH", "KEEP_DAYS"))
_DAY_MS = 86_400_000


class ScheduleRunner:
    """Starts the jobs of due schedules: in a worker until it stops, in a tick until nothing is due."""

    name = "schedules"
    max_ms: int | None = None
    concurrency: Concurrency = "leading"

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        values: dict[str, Any] = load_some(_SETTINGS, {})
        poll_ms, self._batch, keep_days = (int(values[name]) for name in _SETTINGS)
        self._poll_s = poll_ms / 1000
        self._keep_ms = keep_days * _DAY_MS
        self._wake = asyncio.Event()
        self._lagging: set[str] = set()

    async def run(self, context: RunnerContext) -> RunnerReport:
        """Start what is due until the worker stops; in a tick, until nothing is due or the budget is spent."""
        self._wake = asyncio.Event()
        if context.mode == "tick":
            await self._fire_all(context)
            await self._trim(context)
            return context.counts
        listener = self._listen()
        tending = [
            asyncio.create_task(self._keep_trimming(context), name="holdfast schedules upkeep"),
            asyncio.create_task(self._wake_at_stop(context), name="holdfast schedules end"),
        ]
        try:
            while not context.stopping.is_set():
                await self._look(context)
        finally:
            for task in tending:
                task.cancel()
            await asyncio.gather(*tending, return_exceptions=True)
            if listener is not None:
                await asyncio.to_thread(listener.close)
        return context.counts

    async def _look(self, context: RunnerContext) -> None:
        """Start what is due, and wait until more may be."""
        self._wake.clear()
        try:
            wait_s = await self._fire_all(context)
        except HoldfastError as error:
            log.warning("due schedules could not be started: %s", error)
            wait_s = AFTER_ERROR_S
        if await context.clock.wait(self._wake, wait_s) and not context.stopping.is_set():
            await context.clock.sleep(COALESCE_S)

    async def _fire_all(self, context: RunnerContext) -> float:
        """Start all that is due and that this process can start; return how long until the next may be."""
        while True:
            heads = await self._run(SCHEDULES.heads(), context)
            own = [each for each in heads if self._can_start(each.type)]
            due = [each.type for each in own if each.next_at <= each.now]
            taken = 0
            for type in due:
                taken += await self._fire_type(type, context)
            if not taken or context.stopping.is_set() or self._is_over(context):
                self._tell_lag(heads, context)
                return self._wait_s(own)

    async def _fire_type(self, type: str, context: RunnerContext) -> int:
        """Start what is due of a type; return how many schedules that were."""
        total = 0
        while not context.stopping.is_set() and not self._is_over(context):
            fired = await self._fire_batch(type, context)
            total += fired.taken
            if fired.taken < self._batch:
                break
        return total

    async def _fire_batch(self, type: str, context: RunnerContext) -> Fired:
        app = self._app
        op = fire_due(
            app.database.store,
            app.targets,
            app.registry.sealer,
            type,
            self._batch,
            has_observers=app.observer() is not None,
        )
        change = await self._run(op, context)
        if change.hints and app.sends_hints:
            app.notifier.send(change.hints)
        app.tell(change.events)
        fired = change.answer
        context.counts.processed += fired.taken
        context.counts.errors += fired.refused
        self._tell(type, fired, context)
        return fired

    def _is_over(self, context: RunnerContext) -> bool:
        return context.mode == "tick" and context.is_spent()

    def _can_start(self, type: str) -> bool:
        """Whether this application knows a type; if not, a worker of another one starts its jobs."""
        try:
            self._app.targets.entry(type)
        except HoldfastError:
            return False
        return True

    def _wait_s(self, heads: list[Head]) -> float:
        """Return how long until the next is due, at most as long as between two looks."""
        waits = [(each.next_at - each.now) / 1e6 for each in heads]
        if any(each <= 0 for each in waits):
            # Another process has locked what is due. If it dies, that is ours.
            return min(self._poll_s, LOCKED_S)
        return max(0.001, min([self._poll_s, *waits]))

    async def _run(self, op: Op[T], context: RunnerContext) -> T:
        now: Instant | None = context.now()
        timed = op if now is None else at(op, now)
        if context.mode == "tick":
            return await self._app.database.run_async(timed)
        # In a thread, where the statements of a batch do not each wait for the jobs that it has just started.
        return await asyncio.to_thread(self._app.database.run, timed)

    # ---- What goes on beside it

    def _listen(self) -> Listener | None:
        if not self._app.sends_hints:
            return None
        here = asyncio.get_running_loop()

        def on_hint(hint: Hint) -> None:
            if hint in (SCHEDULE_HINT, LOOK_EVERYWHERE):
                call_on(here, self._wake.set)

        return self._app.notifier.listen(on_hint)

    async def _wake_at_stop(self, context: RunnerContext) -> None:
        await context.stopping.wait()
        self._wake.set()

    async def _keep_trimming(self, context: RunnerContext) -> None:
        # It ends by itself as well: what is cancelled in a statement may have ended it, and goes on.
        while not context.stopping.is_set():
            await self._trim(context)
            pause_s = TRIM_S * (0.75 + context.clock.random() / 2)
            await context.clock.wait(context.stopping, pause_s)

    async def _trim(self, context: RunnerContext) -> None:
        """Remove what is older than it is to be kept, a batch after the other."""
        removed = 0
        try:
            for _ in range(TRIM_MAX_BATCHES):
                count = await self._run(SCHEDULES.trim(self._keep_ms, TRIM_BATCH), context)
                removed += count
                if count < TRIM_BATCH:
                    break
        except HoldfastError as error:
            log.warning("old due times of schedules could not be removed: %s", error)
        if removed:
            _emit(context, SCHEDULES_TRIMMED, slots=removed)

    def _tell(self, type: str, fired: Fired, context: RunnerContext) -> None:
        if fired.taken:
            _emit(
                context,
                SCHEDULE_FIRED,
                type=type,
                started=fired.started,
                skipped=fired.skipped,
                missed=fired.missed,
                late_ms=fired.late_us // 1000,
            )
        for name, error in fired.errors.items():
            _emit(context, SCHEDULE_REFUSED, type=type, schedule=name, error=error)

    def _tell_lag(self, heads: list[Head], context: RunnerContext) -> None:
        """Tell how late the first schedule of each type is, also of types that no process here can start."""
        lags = {each.type: max(0, each.now - each.next_at) // 1000 for each in heads}
        for type in self._lagging - lags.keys():
            lags[type] = 0
        for type, lag_ms in lags.items():
            _emit(context, SCHEDULE_LAG, type=type, lag_ms=lag_ms)
        self._lagging = {type for type, lag_ms in lags.items() if lag_ms}


def _emit(context: RunnerContext, spec: EventSpec, **fields: Any) -> None:
    if context.observer is not None and wants_of(context.observer)(spec.name):
        context.observer.observe(spec(**fields))


def make_runner(app: Holdfast, settings: Settings) -> ScheduleRunner | None:
    """Return the runner of an application that has schedules."""
    return None if declared_schedules(app) is None else ScheduleRunner(app)


RUNNERS = (make_runner,)
