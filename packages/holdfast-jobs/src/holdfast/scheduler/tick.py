"""Passes over runners, which begin, bound, isolate and record their runs, and the tick: one pass over all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec

from holdfast.commands.identity import check_identity
from holdfast.core.cycle import NewRun
from holdfast.core.errors import DuplicateCycle, words_of
from holdfast.core.events import Observer, event
from holdfast.core.instants import Instant, to_datetime, to_instant
from holdfast.core.redaction import clean_error
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
    result_of,
    skipped_result,
)
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.worker.clock import Clock, SystemClock, all_ended
from holdfast.worker.counters import Counters
from holdfast.worker.handler_threads import HandlerThreads

CANCEL_GRACE_S = 5.0
"""How long a cancelled runner may take to record its outcome."""

REAPER = "reaper"
BUSY = "worker_already_running"
RECORD_EVERY_S = 60.0
FAILURE_EVERY_S = 30.0


@dataclass(frozen=True, slots=True)
class TickOptions:
    """The runners of a tick, in order, and its budget; without names all runners as registered."""

    names: tuple[str, ...] | None = None
    overall_ms: int = 480_000
    runner_ms: int = 60_000
    items: int = 200
    at_once: int = 10
    statement_timeout_ms: int = 10_000


@dataclass(slots=True)
class Pass:
    """One pass: its run, its budget, and what its runners leave for its end."""

    run_id: str
    budget: Budget
    is_paused: bool
    next_in_ms: int | None = None
    last_error: str | None = None
    counters: Counters = field(default_factory=lambda: Counters(ticks=1))


class Passes:
    """Runs passes over an application's runners, several at once if they share none of them.

    At most `at_once` concurrent runners run at a time.
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
        threads: HandlerThreads | None = None,
    ) -> None:
        """`threads` run the cycles' handlers, and end with the passes."""
        self.worker = worker
        self.count = 0
        self.abandoned: list[str] = []
        self._store = database.store
        self._options = options or TickOptions()
        self._link = database.link(TICK, self._options.statement_timeout_ms)
        self._mode: Mode = mode
        self._clock = clock or SystemClock()
        self._observer = observer
        self._now = now
        self._threads = threads
        self._runners = _runners_by_name(runners)
        self.names, self._unknown = _order_runners(self._runners, self._options.names)
        self._tasks = RunnerTasks(self._clock)
        self._reported_busy: set[str] = set()
        self._concurrent = asyncio.Semaphore(self._options.at_once)
        self.stopping = asyncio.Event()
        self._recorded_at = float("-inf")
        self._last_failure = "", float("-inf")
        self._beginning: asyncio.Future[tuple[Instant, bool]] | None = None

    async def check(self) -> None:
        """Reject a copied database that was not adopted. Raises: CopiedDatabase, DatabaseUnreachable, DatabaseBusy."""
        await self._link.run(check_identity(self._store))

    def warn_unknown(self) -> None:
        """Warn of names that no runner has."""
        for name in self._unknown:
            self._skip(name, "unknown")

    def stop(self) -> None:
        """Start no more runners, and let those that run start nothing new; a second call cancels them."""
        if self.stopping.is_set():
            self._tasks.interrupt()
        self.stopping.set()

    @property
    def running(self) -> list[str]:
        """The runners that run now, and those of which something was cancelled and still runs."""
        return self._tasks.names

    async def close(self) -> None:
        """Abandon what was cancelled and still runs; close the connection."""
        self.abandoned = self.running
        self._tasks.close()
        if self._threads is not None:
            self._threads.close()
        await self._link.close()

    async def run_pass(self, names: Sequence[str]) -> tuple[TickSummary, int | None]:
        """Run these runners once; return what they did, and in how many milliseconds one of them is due again.

        Raises: CopiedDatabase, DatabaseUnreachable, DatabaseBusy.
        """
        began = self._clock.monotonic()
        run_id = new_id()
        started_at, is_paused = await self._begin_together(run_id)
        this = Pass(run_id, Budget(int(began * 1000), None, self._options.overall_ms), is_paused)
        results = await self._run_in_order(names, this)
        summary = self._summary(run_id, started_at, began, results)
        await self._record(summary, this)
        self.count += 1
        self._emit(
            "tick_finished",
            worker=self.worker,
            run_id=run_id,
            processed=summary.total_processed,
            errors=summary.total_errors,
            duration_ms=summary.duration_ms,
        )
        return summary, this.next_in_ms

    async def _begin_together(self, run_id: str) -> tuple[Instant, bool]:
        """Read the time, and whether all is paused; loops that begin at the same moment share one read."""
        if self._mode == "tick":
            return await self._link.run_atomic(self._begin(run_id))
        if self._beginning is None or self._beginning.done():
            self._beginning = asyncio.ensure_future(self._link.run_atomic(self._begin(run_id)))
        return await asyncio.shield(self._beginning)

    def _begin(self, run_id: str) -> Op[tuple[Instant, bool]]:
        identity = yield from check_identity(self._store)
        is_paused = identity is not None and identity.paused
        if self._mode == "tick":
            run = NewRun(run_id, TICK, self.worker)
            return (yield from self._store.runs.begin(run, self._now())), is_paused
        now = self._now()
        return (yield from self._store.schema.clock()) if now is None else now, is_paused

    async def _run_in_order(self, names: Sequence[str], this: Pass) -> dict[str, RunnerResult]:
        """Begin the runners in order and wait for all of them; a cancellation cancels each."""
        async with asyncio.TaskGroup() as group:
            steps = {}
            for name in names:
                steps[name] = group.create_task(self._run_runner(name, this))
                await all_ended(self._clock, [steps[name]], self._wait_s(name))
        return {name: step.result() for name, step in steps.items()}

    def _wait_s(self, name: str) -> float | None:
        """Return how long the next runner waits for this one; None until it ends."""
        concurrency = concurrency_of(self._runners[name])
        if concurrency == "sequential":
            return None
        return self._limit_ms(name) / 1000 if concurrency in ("lingering", "leading") else 0.0

    def _limit_ms(self, name: str) -> int:
        return self._runners[name].max_ms or self._options.runner_ms

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    async def _run_runner(self, name: str, this: Pass) -> RunnerResult:
        concurrency = concurrency_of(self._runners[name])
        # One that goes on for as long as the worker would keep its place from all others.
        is_concurrent = concurrency == "concurrent"
        async with self._concurrent if is_concurrent else nullcontext():
            reason = self._reason_to_skip(name, this)
            if reason is not None:
                return self._skip(name, reason)
            self._reported_busy.discard(name)
            return await self._run_within_budget(name, this)

    def _reason_to_skip(self, name: str, this: Pass) -> str | None:
        if self.stopping.is_set():
            return "stopping"
        if this.is_paused and name != REAPER:
            return "paused"
        if name in self._tasks.names:
            return BUSY
        return "tick_budget_spent" if this.budget.is_exhausted(self._now_ms()) else None

    async def _run_within_budget(self, name: str, this: Pass) -> RunnerResult:
        runner, whole, now_ms = self._runners[name], this.budget, self._now_ms()
        own = Budget(now_ms, self._options.items, self._limit_ms(name)).within(whole, now_ms)
        context = RunnerContext(
            run_id=this.run_id,
            worker=self.worker,
            mode=self._mode,
            link=self._link,
            clock=self._clock,
            budget=own,
            tick_budget=whole,
            observer=self._observer,
            now=self._now,
            stopping=self.stopping,
            worker_counters=this.counters,
        )
        limit_ms = own.remaining_ms(now_ms)
        if concurrency_of(runner) != "sequential":
            limit_ms = (whole.remaining_ms(now_ms) or 0) + int(CANCEL_GRACE_S * 1000)
        if concurrency_of(runner) in ("continuous", "leading") and self._mode == "background":
            limit_ms = None
        outcome = await self._tasks.run(runner, context, limit_ms)
        this.last_error = context.worker_error or this.last_error
        wakes = [each for each in (this.next_in_ms, context.next_in_ms) if each is not None]
        this.next_in_ms = min(wakes, default=None)
        self._emit("runner_finished", worker=self.worker, runner=name, **outcome.numbers)
        return outcome

    def _skip(self, name: str, reason: str) -> RunnerResult:
        # One that does not stop is busy at every pass; reporting it once is enough.
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

    async def _record(self, summary: TickSummary, this: Pass) -> None:
        """Store the summary: always of a single tick; in the background of failures, and of work once a minute."""
        now = self._clock.monotonic()
        if self._mode == "background":
            is_due = summary.total_processed and now - self._recorded_at >= RECORD_EVERY_S
            if not is_due and not summary.total_errors:
                return
        self._recorded_at = now
        await self._link.run_atomic(self._record_op(summary, this))

    def _record_op(self, summary: TickSummary, this: Pass) -> Op[None]:
        if self._mode == "background":
            run = NewRun(summary.run_id, TICK, self.worker)
            yield from self._store.runs.begin(run, to_instant(summary.started_at))
        failed = summary.failed_runners
        yield from self._store.runs.finish(
            summary.run_id,
            "failed" if failed else "completed",
            self._record_text(summary, this),
            f"failed: {', '.join(failed)}" if failed else None,
            self._now(),
        )

    def _record_text(self, summary: TickSummary, this: Pass) -> str:
        """Return the summary as JSON; that of a single tick has what a worker's record has of others."""
        found = summary.as_dict()
        if self._mode == "tick":
            found["counters"] = this.counters.as_dict()
            if this.last_error is not None:
                found["last_error"] = this.last_error
        return msgspec.json.encode(found).decode()

    def report_failure(self, error: Exception) -> None:
        """Emit that a pass could not run: once for all that fail for the same reason within half a minute."""
        text, now = clean_error(type(error).__name__, words_of(error)), self._clock.monotonic()
        last_text, last_at = self._last_failure
        if text != last_text or now - last_at >= FAILURE_EVERY_S:
            self._last_failure = text, now
            self._emit("tick_failed", worker=self.worker, error=text)

    def _emit(self, name: str, **fields: object) -> None:
        if self._observer is not None:
            self._observer.observe(event(name, **fields))


class Tick(Passes):
    """Runs one tick at a time, for `holdfast tick` and run-once; the reaper always comes first."""

    next_in_ms: int | None = None
    _current: asyncio.Task[TickSummary] | None = None

    async def run(self) -> TickSummary:
        """Run a tick, or join the one that runs. Raises: CopiedDatabase, DatabaseUnreachable, DatabaseBusy."""
        if self._current is None:
            self._current = asyncio.create_task(self._run(), name="holdfast tick")
        return await asyncio.shield(self._current)

    async def run_once(self) -> TickSummary | TickSkipped:
        """Run a tick unless one runs already."""
        return TickSkipped() if self._current is not None else await self.run()

    async def close(self, timeout_s: float = 0.0) -> None:
        """Wait for the tick that runs, at most this long, then cancel it, then abandon what does not stop."""
        running = [] if self._current is None else [self._current]
        if not await all_ended(self._clock, running, timeout_s):
            for task in running:
                task.cancel()
            await all_ended(self._clock, running, 2 * CANCEL_GRACE_S)
        await super().close()

    async def _run(self) -> TickSummary:
        try:
            self.warn_unknown()
            summary, self.next_in_ms = await self.run_pass(self.names)
            return summary
        finally:
            self._current = None


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

    @property
    def names(self) -> list[str]:
        """The runners that run, and those of which something was cancelled and still runs."""
        self._unstopped = {
            name: left
            for name, futures in self._unstopped.items()
            if (left := [each for each in futures if not each.done()])
        }
        return list(dict.fromkeys([*self._running, *self._unstopped]))

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
