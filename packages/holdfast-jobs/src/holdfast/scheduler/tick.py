"""The tick: one budgeted pass over all runners, started in order, each isolated from the failures of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.commands.identity import check_identity
from holdfast.core.cycle import NewRun
from holdfast.core.errors import DuplicateCycle
from holdfast.core.events import Observer, event
from holdfast.core.instants import Instant, to_datetime, to_instant
from holdfast.core.redaction import clean_error, words_of
from holdfast.scheduler.runner import (
    TICK,
    Budget,
    Mode,
    Now,
    Runner,
    RunnerContext,
    RunnerFailed,
    RunnerReport,
    RunnerResult,
    TickSkipped,
    TickSummary,
    concurrency_of,
    database_time,
    merge_results,
    result_of,
    skipped_result,
)
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.worker.clock import Clock, SystemClock, all_ended
from holdfast.worker.counters import Counters

CANCEL_GRACE_S = 5.0
"""How long a cancelled runner may take to record its outcome."""

REAPER = "reaper"
BUSY = "worker_already_running"
RECORD_EVERY_S = 60.0
SETTLE_S = 0.2
"""How long a background tick waits for concurrent runners; a later tick reports those that take longer."""


@dataclass(frozen=True, slots=True)
class TickOptions:
    """The runners of a tick, in order, and its budget; without names all runners as registered."""

    names: tuple[str, ...] | None = None
    overall_ms: int = 480_000
    runner_ms: int = 60_000
    items: int = 200
    at_once: int = 10
    statement_timeout_ms: int = 10_000


class Tick:
    """Runs one tick at a time; the reaper always comes first.

    Concurrent runners, at most `at_once` of them, may outlive a background tick: they are skipped while they run, and
    the first tick after their end reports what they did. `on_late_result` is called at such an end.
    """

    def __init__(
        self,
        database: Database,
        runners: Sequence[Runner],
        worker: str,
        options: TickOptions | None = None,
        *,
        mode: Mode = "tick",
        clock: Clock | None = None,
        observer: Observer | None = None,
        now: Now = database_time,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.worker = worker
        self.count = 0
        self.abandoned: list[str] = []
        self.on_late_result: Callable[[], object] = lambda: None
        self.next_in_ms: int | None = None
        self._store = database.store
        self._options = options or TickOptions()
        self._link = database.link(TICK, self._options.statement_timeout_ms)
        self._mode: Mode = mode
        self._clock = clock or SystemClock()
        self._observer = observer
        self._now = now
        self._on_close = on_close
        self._runners = _runners_by_name(runners)
        self._order, self._unknown = _order_runners(self._runners, self._options.names)
        self._tasks = RunnerTasks(self._clock)
        self._begun: dict[str, asyncio.Task[RunnerResult]] = {}
        self._late: set[str] = set()
        self._reported_busy: set[str] = set()
        self._counters = Counters()
        self._last_error: str | None = None
        self._concurrent = asyncio.Semaphore(self._options.at_once)
        self._stopping = asyncio.Event()
        self._current: asyncio.Task[TickSummary] | None = None
        self._recorded_at = float("-inf")

    @property
    def names(self) -> list[str]:
        """The runners of a tick in order."""
        return list(self._order)

    async def check(self) -> None:
        """Reject a copied database that was not adopted. Raises: CopiedDatabase, DatabaseUnreachable, DatabaseBusy."""
        await self._link.run(check_identity(self._store))

    async def run(self) -> TickSummary:
        """Run a tick, or join the one that runs. Raises: CopiedDatabase, DatabaseUnreachable, DatabaseBusy."""
        if self._current is None:
            self._current = asyncio.create_task(self._run(), name="holdfast tick")
            self._current.add_done_callback(self._on_ended)
        return await asyncio.shield(self._current)

    async def run_once(self) -> TickSummary | TickSkipped:
        """Run a tick unless one runs already."""
        return TickSkipped() if self._current is not None else await self.run()

    def stop(self) -> None:
        """Start no more runners, and let those that run start nothing new; a second call cancels them."""
        if self._stopping.is_set():
            self._tasks.interrupt()
        self._stopping.set()

    @property
    def running(self) -> list[str]:
        """The runners that run now, and those of which something was cancelled and still runs."""
        begun = [name for name, task in self._begun.items() if not task.done()]
        return list(dict.fromkeys([*begun, *self._tasks.unstopped]))

    async def wait_until_idle(self) -> None:
        """Wait until no tick and no runner runs."""
        while running := self._running_tasks():
            await asyncio.wait(running)

    async def close(self, timeout_s: float = 0.0) -> None:
        """Wait for what runs, at most this long, then cancel it, then abandon it; close the connection."""
        if not await all_ended(self._clock, self._running_tasks(), timeout_s):
            going = self._running_tasks()
            for task in going:
                task.cancel()
            await all_ended(self._clock, going, 2 * CANCEL_GRACE_S)
        self.abandoned = self.running
        self._tasks.close()
        if self._on_close is not None:
            self._on_close()
        await self._link.close()

    def _running_tasks(self) -> list[asyncio.Task[Any]]:
        tasks: list[asyncio.Task[Any] | None] = [self._current, *self._begun.values()]
        return [each for each in tasks if each is not None and not each.done()]

    def _on_ended(self, task: asyncio.Task[TickSummary]) -> None:
        self._current = None

    async def _run(self) -> TickSummary:
        began = self._clock.monotonic()
        run_id = new_id()
        started_at, is_paused = await self._link.run_atomic(self._begin(run_id))
        self.next_in_ms = None
        self._counters, self._last_error = Counters(ticks=1), None
        whole = Budget(int(began * 1000), None, self._options.overall_ms)
        for name in self._unknown:
            self._skip(name, "unknown")
        results = await self._pass(run_id, whole, is_paused)
        summary = self._summary(run_id, started_at, began, results)
        await self._record(summary)
        self.count += 1
        self._emit(
            "tick_finished",
            worker=self.worker,
            run_id=run_id,
            processed=summary.total_processed,
            errors=summary.total_errors,
            duration_ms=summary.duration_ms,
        )
        return summary

    def _begin(self, run_id: str) -> Op[tuple[Instant, bool]]:
        identity = yield from check_identity(self._store)
        is_paused = identity is not None and identity.paused
        if self._mode == "tick":
            run = NewRun(run_id, TICK, self.worker)
            return (yield from self._store.runs.begin(run, self._now())), is_paused
        now = self._now()
        return (yield from self._store.schema.clock()) if now is None else now, is_paused

    async def _pass(self, run_id: str, whole: Budget, is_paused: bool) -> dict[str, RunnerResult]:
        """Begin the runners in order and wait for them; return how each went, what ended late before included."""
        results: dict[str, RunnerResult] = {}
        steps: list[asyncio.Task[RunnerResult]] = []
        for name in self._order:
            earlier = self._take_result(name)
            if earlier is not None:
                results[name] = earlier
            reason = self._reason_to_skip(name, whole, is_paused)
            if reason is None:
                self._reported_busy.discard(name)
                step = asyncio.create_task(self._run_runner(name, run_id, whole))
                self._begun[name] = step
                steps.append(step)
                await all_ended(self._clock, [step], self._wait_s(name))
            else:
                results[name] = merge_results(earlier, self._skip(name, reason))
        is_alone = self._mode == "tick"
        await all_ended(self._clock, steps, None if is_alone else SETTLE_S)
        for name in list(self._begun):
            found = self._take_result(name)
            if found is not None:
                results[name] = merge_results(results.get(name), found)
            else:
                self._late.add(name)
                results.setdefault(name, skipped_result("still_running"))
        return {name: results[name] for name in self._order}

    def _reason_to_skip(self, name: str, whole: Budget, is_paused: bool) -> str | None:
        if self._stopping.is_set():
            return "stopping"
        if is_paused and name != REAPER:
            return "paused"
        if name in self._begun or self._tasks.is_busy(name):
            return BUSY
        return "tick_budget_spent" if whole.is_exhausted(self._now_ms()) else None

    def _take_result(self, name: str) -> RunnerResult | None:
        """Take the result of a runner that has ended; None while it runs."""
        step = self._begun.get(name)
        if step is None or not step.done():
            return None
        del self._begun[name]
        self._late.discard(name)
        return step.result()

    def _wait_s(self, name: str) -> float | None:
        """Return how long the next runner waits for this one; None until it ends."""
        concurrency = concurrency_of(self._runners[name])
        if concurrency == "sequential":
            return None
        return 0.0 if concurrency == "concurrent" else self._limit_ms(name) / 1000

    def _limit_ms(self, name: str) -> int:
        return self._runners[name].max_ms or self._options.runner_ms

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    async def _run_runner(self, name: str, run_id: str, whole: Budget) -> RunnerResult:
        try:
            if concurrency_of(self._runners[name]) != "concurrent":
                return await self._run_within_budget(name, run_id, whole)
            async with self._concurrent:
                return await self._run_within_budget(name, run_id, whole)
        finally:
            if name in self._late:
                # On the next turn of the loop this task is done, and a tick finds its result.
                asyncio.get_running_loop().call_soon(self.on_late_result)

    async def _run_within_budget(self, name: str, run_id: str, whole: Budget) -> RunnerResult:
        runner = self._runners[name]
        now_ms = self._now_ms()
        if self._stopping.is_set() or whole.is_exhausted(now_ms):
            return self._skip(name, "stopping" if self._stopping.is_set() else "tick_budget_spent")
        own = Budget(now_ms, self._options.items, self._limit_ms(name)).within(whole, now_ms)
        context = RunnerContext(
            run_id=run_id,
            worker=self.worker,
            mode=self._mode,
            link=self._link,
            clock=self._clock,
            budget=own,
            tick_budget=whole,
            observer=self._observer,
            now=self._now,
            stopping=self._stopping,
            worker_counters=self._counters,
        )
        limit_ms = own.remaining_ms(now_ms)
        if concurrency_of(runner) != "sequential":
            limit_ms = (whole.remaining_ms(now_ms) or 0) + int(CANCEL_GRACE_S * 1000)
        outcome = await self._tasks.run(runner, context, limit_ms)
        self._last_error = context.worker_error or self._last_error
        wakes = [each for each in (self.next_in_ms, context.next_in_ms) if each is not None]
        self.next_in_ms = min(wakes, default=None)
        self._emit("runner_finished", worker=self.worker, runner=name, **outcome.numbers)
        return outcome

    def _skip(self, name: str, reason: str) -> RunnerResult:
        # A slow runner is busy at every tick; reporting it once is enough.
        if reason != BUSY or name not in self._reported_busy:
            self._emit("runner_skipped", worker=self.worker, runner=name, reason=reason)
        if reason == BUSY:
            self._reported_busy.add(name)
        return skipped_result(reason)

    def _summary(
        self, run_id: str, started_at: Instant, began: float, results: dict[str, RunnerResult]
    ) -> TickSummary:
        duration_ms = int((self._clock.monotonic() - began) * 1000)
        start = to_datetime(started_at)
        return TickSummary(
            run_id=run_id,
            started_at=start,
            finished_at=start + timedelta(milliseconds=duration_ms),
            duration_ms=duration_ms,
            runner_results=results,
            total_processed=sum(each.processed for each in results.values()),
            total_errors=sum(each.errors for each in results.values()),
        )

    async def _record(self, summary: TickSummary) -> None:
        """Store the summary: always of a single tick; in the background of failures, and of work once a minute."""
        now = self._clock.monotonic()
        if self._mode == "background":
            is_due = summary.total_processed and now - self._recorded_at >= RECORD_EVERY_S
            if not is_due and not summary.total_errors:
                return
        self._recorded_at = now
        await self._link.run_atomic(self._record_op(summary))

    def _record_op(self, summary: TickSummary) -> Op[None]:
        if self._mode == "background":
            run = NewRun(summary.run_id, TICK, self.worker)
            yield from self._store.runs.begin(run, to_instant(summary.started_at))
        failed = summary.failed_runners
        yield from self._store.runs.finish(
            summary.run_id,
            "failed" if failed else "completed",
            self._record_text(summary),
            f"failed: {', '.join(failed)}" if failed else None,
            self._now(),
        )

    def _record_text(self, summary: TickSummary) -> str:
        """Return the summary as JSON; that of a single tick has what a worker's record has of others."""
        found = summary.as_dict()
        if self._mode == "tick":
            found["counters"] = self._counters.as_dict()
            if self._last_error is not None:
                found["last_error"] = self._last_error
        return msgspec.json.encode(found).decode()

    def _emit(self, name: str, **fields: object) -> None:
        if self._observer is not None:
            self._observer.observe(event(name, **fields))


def _runners_by_name(runners: Sequence[Runner]) -> Mapping[str, Runner]:
    found: dict[str, Runner] = {}
    for each in runners:
        if each.name in found:
            raise DuplicateCycle(f"two runners are called {each.name}")
        found[each.name] = each
    return found


def _order_runners(
    runners: Mapping[str, Runner], names: tuple[str, ...] | None
) -> tuple[list[str], list[str]]:
    """Return the runners of a tick in order, and the unknown names."""
    wanted = list(runners) if names is None else list(names)
    order = [name for name in wanted if name in runners and name != REAPER]
    if REAPER in runners:
        order.insert(0, REAPER)
    return order, [name for name in wanted if name not in runners]


class RunnerTasks:
    """Runs each runner until its end or its time limit, never twice at once, and tracks what did not stop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[str, asyncio.Task[RunnerReport]] = {}
        self._unstopped: dict[str, list[asyncio.Future[object]]] = {}

    def is_busy(self, name: str) -> bool:
        """Return whether an earlier run of this runner is still running."""
        return name in self._running or name in self.unstopped

    @property
    def unstopped(self) -> list[str]:
        """The runners of which something was cancelled and still runs."""
        self._unstopped = {
            name: left
            for name, futures in self._unstopped.items()
            if (left := [each for each in futures if not each.done()])
        }
        return list(self._unstopped)

    async def run(
        self, runner: Runner, context: RunnerContext, limit_ms: int | None
    ) -> RunnerResult:
        """Run a runner; a failure and a cancellation at its time limit are results too."""
        began = self._clock.monotonic()
        task = asyncio.create_task(runner.run(context), name=f"holdfast {runner.name}")
        self._running[runner.name] = task
        try:
            note = await self._wait(task, limit_ms)
        except asyncio.CancelledError:
            task.cancel()
            await all_ended(self._clock, [task], CANCEL_GRACE_S)
            raise
        finally:
            del self._running[runner.name]
            left = [*context.abandoned, task]
            self._unstopped[runner.name] = [each for each in left if not each.done()]
        duration_ms = int((self._clock.monotonic() - began) * 1000)
        if note is None:
            return result_of(task.result(), duration_ms)
        if self._unstopped[runner.name]:
            note = f"{note}; it did not stop and was abandoned"
        context.counts.errors += 1
        return result_of(context.counts, duration_ms, note, failed=True)

    async def _wait(self, task: asyncio.Task[RunnerReport], limit_ms: int | None) -> str | None:
        """Wait for the runner; return why it failed, None when it did not."""
        limit_s = None if limit_ms is None else limit_ms / 1000
        if not await all_ended(self._clock, [task], limit_s):
            task.cancel()
            await all_ended(self._clock, [task], CANCEL_GRACE_S)
            return f"cancelled after {limit_ms} ms, the end of its budget"
        if task.cancelled():
            return "cancelled"
        error = task.exception()
        if isinstance(error, RunnerFailed):
            return str(error)
        return None if error is None else clean_error(type(error).__name__, words_of(error))

    def interrupt(self) -> None:
        """Cancel the runners that run."""
        for task in self._running.values():
            task.cancel()

    def close(self) -> None:
        """Cancel once more what did not stop."""
        for futures in self._unstopped.values():
            for each in futures:
                each.cancel()
