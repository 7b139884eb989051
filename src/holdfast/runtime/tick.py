"""The tick: one budgeted pass over all runners, in order, each isolated from the failures of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from holdfast.core.budget import Budget
from holdfast.core.cycle import NewRun
from holdfast.core.errors import DuplicateCycle
from holdfast.core.events import Observer, event
from holdfast.core.model import Instant, to_datetime, to_instant
from holdfast.ops.identity import check_identity
from holdfast.runtime.runner import Mode, Now, Runner, RunnerContext, database_time
from holdfast.runtime.step import CANCEL_GRACE_S, Steps
from holdfast.runtime.summary import RunnerResult, TickSkipped, TickSummary, skipped
from holdfast.storage.database import Database
from holdfast.storage.identifiers import new_id
from holdfast.storage.statement import Op
from holdfast.worker.clock import Clock, SystemClock, all_ended

REAPER = "reaper"
TICK = "tick"
RECORD_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class TickOptions:
    """Which runners a tick has, in which order, and what it may spend. No names mean all runners as registered."""

    names: tuple[str, ...] | None = None
    overall_ms: int = 480_000
    runner_ms: int = 60_000
    items: int = 200
    statement_timeout_ms: int = 10_000


class Tick:
    """Runs one tick at a time; the reaper comes first in each, whatever the names say."""

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
        self.again_in_ms: int | None = None
        self._store = database.store
        self._options = options or TickOptions()
        self._link = database.link(TICK, self._options.statement_timeout_ms)
        self._mode: Mode = mode
        self._clock = clock or SystemClock()
        self._observer = observer
        self._now = now
        self._on_close = on_close
        self._runners = _by_name(runners)
        self._order, self._unknown = _ordered(self._runners, self._options.names)
        self._steps = Steps(self._clock)
        self._stopping = asyncio.Event()
        self._current: asyncio.Task[TickSummary] | None = None
        self._recorded_at = float("-inf")

    @property
    def names(self) -> list[str]:
        """The runners of a tick in order."""
        return list(self._order)

    async def check(self) -> None:
        """Refuse a database that must not be worked off. Raises: CopiedDatabase, DatabaseUnreachable, DatabaseBusy."""
        await self._link.run(check_identity(self._store))

    async def run(self) -> TickSummary:
        """Run a tick, or join the one that runs. Raises: CopiedDatabase, DatabaseUnreachable, DatabaseBusy."""
        if self._current is None:
            self._current = asyncio.create_task(self._run(), name="holdfast tick")
            self._current.add_done_callback(self._ended)
        return await asyncio.shield(self._current)

    async def run_once(self) -> TickSummary | TickSkipped:
        """Run a tick unless one runs already."""
        return TickSkipped() if self._current is not None else await self.run()

    def stop(self) -> None:
        """Begin no other runner, and have the running one take nothing new; the second call tells it to stop now."""
        if self._stopping.is_set():
            self._steps.interrupt()
        self._stopping.set()

    async def close(self, timeout_s: float = 0.0) -> None:
        """Let the running tick end, at most so long, then cancel it; give the connection up."""
        current = self._current
        if current is not None and not await all_ended(self._clock, [current], timeout_s):
            current.cancel()
            await all_ended(self._clock, [current], 2 * CANCEL_GRACE_S)
        self._steps.close()
        if self._on_close is not None:
            self._on_close()
        await self._link.close()

    def _ended(self, task: asyncio.Task[TickSummary]) -> None:
        self._current = None

    async def _run(self) -> TickSummary:
        began = self._clock.monotonic()
        run_id = new_id()
        started_at, is_paused = await self._link.run_atomic(self._begin(run_id))
        self.again_in_ms = None
        overall = Budget(int(began * 1000), None, self._options.overall_ms)
        results: dict[str, RunnerResult] = {}
        for name in self._unknown:
            self._skip(name, "unknown")
        for name in self._order:
            if self._stopping.is_set():
                results[name] = self._skip(name, "stopping")
            elif is_paused and name != REAPER:
                results[name] = self._skip(name, "paused")
            else:
                results[name] = await self._step(name, run_id, overall)
        summary = self._summary(run_id, started_at, began, results)
        await self._record(summary)
        self.count += 1
        self._tell(
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

    async def _step(self, name: str, run_id: str, overall: Budget) -> RunnerResult:
        if self._steps.is_busy(name):
            return self._skip(name, "worker_already_running")
        runner = self._runners[name]
        now_ms = int(self._clock.monotonic() * 1000)
        if overall.exhausted(now_ms):
            return self._skip(name, "tick_budget_spent")
        own = Budget(now_ms, self._options.items, runner.max_ms or self._options.runner_ms)
        context = RunnerContext(
            run_id=run_id,
            worker=self.worker,
            mode=self._mode,
            link=self._link,
            clock=self._clock,
            budget=own.within(overall, now_ms),
            observer=self._observer,
            now=self._now,
            stopping=self._stopping,
        )
        outcome = await self._steps.run(runner, context)
        if context.again_in_ms is not None:
            self._wake_in(context.again_in_ms)
        self._tell(
            "runner_finished",
            worker=self.worker,
            runner=name,
            processed=outcome.processed,
            updated=outcome.updated,
            skipped=outcome.skipped,
            errors=outcome.errors,
            duration_ms=outcome.duration_ms,
        )
        return outcome

    def _skip(self, name: str, reason: str) -> RunnerResult:
        self._tell("runner_skipped", worker=self.worker, runner=name, reason=reason)
        return skipped(reason)

    def _wake_in(self, ms: int) -> None:
        self.again_in_ms = ms if self.again_in_ms is None else min(self.again_in_ms, ms)

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
        """Keep the summary: always of a single tick, in the background of failures and now and then of work."""
        now = self._clock.monotonic()
        if self._mode == "background":
            is_news = summary.total_processed and now - self._recorded_at >= RECORD_EVERY_S
            if not is_news and not summary.total_errors:
                return
        self._recorded_at = now
        await self._link.run_atomic(self._recording(summary))

    def _recording(self, summary: TickSummary) -> Op[None]:
        if self._mode == "background":
            run = NewRun(summary.run_id, TICK, self.worker)
            yield from self._store.runs.begin(run, to_instant(summary.started_at))
        failed = summary.failed_runners
        yield from self._store.runs.finish(
            summary.run_id,
            "failed" if failed else "completed",
            msgspec.json.encode(summary).decode(),
            f"failed: {', '.join(failed)}" if failed else None,
            self._now(),
        )

    def _tell(self, name: str, **fields: object) -> None:
        if self._observer is not None:
            self._observer.observe(event(name, **fields))


def _by_name(runners: Sequence[Runner]) -> Mapping[str, Runner]:
    found: dict[str, Runner] = {}
    for each in runners:
        if each.name in found:
            raise DuplicateCycle(f"two runners are called {each.name}")
        found[each.name] = each
    return found


def _ordered(
    runners: Mapping[str, Runner], names: tuple[str, ...] | None
) -> tuple[list[str], list[str]]:
    """Return the runners of a tick in order, and the names that mean nothing here."""
    wanted = list(runners) if names is None else list(names)
    order = [name for name in wanted if name in runners and name != REAPER]
    if REAPER in runners:
        order.insert(0, REAPER)
    return order, [name for name in wanted if name not in runners]
