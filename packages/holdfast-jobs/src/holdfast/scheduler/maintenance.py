"""Runners that maintain the database: the reaper, which also monitors workers and the clock, and retention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from holdfast.commands.attempts import AHEAD_US, ReapReport, ahead_us
from holdfast.commands.jobs import EndReport, expire_jobs, fail_unhandled
from holdfast.commands.retention import (
    FIRST_ID,
    Ages,
    chains_are_archived,
    remove_by_rule,
    remove_chains,
    remove_dead_letters,
    remove_records,
)
from holdfast.core.errors import DatabaseUnreachable
from holdfast.core.events import Event
from holdfast.core.lifecycle import EXPIRED
from holdfast.core.statistics import TypeTotals
from holdfast.core.worker_presence import WorkerRecord
from holdfast.notify.base import Notifier
from holdfast.scheduler.runner import Mode, RunnerContext, RunnerReport
from holdfast.storage.store import Store
from holdfast.worker.counters import Counters
from holdfast.worker.reaper import OutageGuard, reap_all
from holdfast.worker.worker_context import reaped_fields

CHECK_EVERY_MS = 60_000
SETTLE_MS = 5_000
"""Workers that start together, this process's own included, need a moment to register their types."""

_MANY = 1_000
RETENTION_EVERY_MS = 600_000
REMOVE_FOR_MS: Mapping[Mode, int] = {"background": 1_000, "tick": 5_000}
"""How long a run of retention may take: the rest of a worker's maintenance waits for its end."""

FOLD_EVERY_MS = 60_000
FOLD_AT_ONCE = 10_000
"""Writes append counts by the thousand, and every page sums them."""


class WorkerReaperRunner:
    """Reports what the background worker's own reaper recovered since the last pass, and monitors clock and workers.

    There is one reaper in a process; in the background it belongs to the worker, where no slow runner delays it.
    """

    name = "reaper"
    max_ms: int | None = None

    def __init__(
        self,
        store: Store,
        counters: Counters,
        notifier: Notifier | None = None,
        unhandled_after_ms: int | None = None,
    ) -> None:
        self._store = store
        self._notifier = notifier
        self._counters = counters
        self._reported = counters.recovered
        self._workers = WorkerMonitor(store, notifier, unhandled_after_ms)
        self._clock = ClockMonitor(store)

    async def run(self, context: RunnerContext) -> RunnerReport:
        await self._clock.check(context)
        await self._recover(context)
        await self._workers.check(context)
        op = expire_jobs(self._store, context.room(_MANY), context.now())
        report = await context.link.run_atomic(op)
        _announce(context, self._notifier, report.events("cancelled", EXPIRED), report)
        return context.counts

    async def _recover(self, context: RunnerContext) -> None:
        before, self._reported = self._reported, self._counters.recovered
        context.counts.processed += self._reported - before


class ReaperRunner(WorkerReaperRunner):
    """Recovers jobs of expired leases, of all types, and monitors clock and workers; first in every single tick."""

    def __init__(
        self,
        store: Store,
        batch: int,
        poison_limit: int,
        notifier: Notifier | None = None,
        interval_s: float = 10.0,
        unhandled_after_ms: int | None = None,
    ) -> None:
        super().__init__(store, Counters(), notifier, unhandled_after_ms)
        self._batch = batch
        self._poison_limit = poison_limit
        self._interval_s = interval_s
        self._guard: OutageGuard | None = None
        self._unreachable_at = float("-inf")

    async def run(self, context: RunnerContext) -> RunnerReport:
        try:
            return await super().run(context)
        except DatabaseUnreachable:
            self._unreachable_at = context.clock.monotonic()
            raise

    async def _recover(self, context: RunnerContext) -> None:
        guard = await self._wait_after_outage(context)
        began, limits = context.now_ms(), (self._batch, self._poison_limit)
        tell, now = partial(self._report_reaped, context), lambda: guard.looked_at
        count = await reap_all(context.link, self._store, *limits, tell, now, context.is_spent)
        context.worker_counters.reaper_runs += 1
        took_ms = context.now_ms() - began
        context.emit("reaper_ran", worker=context.worker, recovered=count, duration_ms=took_ms)

    async def _wait_after_outage(self, context: RunnerContext) -> OutageGuard:
        """Wait an interval after an outage, so that workers can renew; never so long that no time is left."""
        guard = self._guard or OutageGuard(self._store, context.clock, self._interval_s)
        self._guard = guard
        if not await guard.is_calm(context.link, self._unreachable_at, context.now()):
            left_ms = context.budget.remaining_ms(context.now_ms())
            left_s = self._interval_s if left_ms is None else left_ms / 2_000
            await context.clock.wait(context.stopping, min(self._interval_s, left_s))
        return guard

    def _report_reaped(self, context: RunnerContext, report: ReapReport) -> None:
        jobs = report.page.reaped
        context.counts.processed += len(jobs)
        context.worker_counters.recovered += len(jobs)
        for each in jobs:
            context.emit("job_reaped", **reaped_fields(each))
        if self._notifier is not None:
            self._notifier.send(report.hints())


class WorkerMonitor:
    """Reports workers that vanished and types that no worker handles, each once.

    Jobs of such types become dead letters after `unhandled_after_ms`, if that is set.
    """

    def __init__(
        self, store: Store, notifier: Notifier | None = None, unhandled_after_ms: int | None = None
    ) -> None:
        self._store = store
        self._notifier = notifier
        self._unhandled_after_ms = unhandled_after_ms
        self._every_ms = min(CHECK_EVERY_MS, unhandled_after_ms or CHECK_EVERY_MS)
        self._check_at_ms: int | None = None
        self._reported: set[str] = set()

    async def check(self, context: RunnerContext) -> None:
        """Report what is new."""
        await self._report_vanished(context)
        # The process of a single tick is not registered as a worker, so it could not count itself.
        if context.mode != "background":
            return
        now_ms = context.now_ms()
        if self._check_at_ms is None:
            self._check_at_ms = now_ms + SETTLE_MS
        elif now_ms >= self._check_at_ms:
            self._check_at_ms = now_ms + self._every_ms
            await self._report_unhandled(context)

    async def _report_vanished(self, context: RunnerContext) -> None:
        """Each vanished worker is reported by the one replica that marks it."""
        op = self._store.workers.mark_vanished(context.now())
        gone = await context.link.run_atomic(op)
        if not gone:
            return
        now = context.now()
        if now is None:
            now = await context.link.run(self._store.schema.clock())
        for each in gone:
            context.counts.updated += 1
            context.emit(
                "worker_vanished",
                worker=each.id,
                by=context.worker,
                silent_ms=(now - each.seen_at) // 1000,
            )

    async def _report_unhandled(self, context: RunnerContext) -> None:
        now, link, store = context.now(), context.link, self._store.workers
        workers = await link.run(store.page(_MANY, live=True, now=now))
        if len(workers) == _MANY:
            # There may be more, and they may handle what these do not.
            return
        found = set(unhandled_types(workers, await link.run(store.type_totals(now))))
        for type in sorted(found - self._reported):
            context.emit("type_unhandled", type=type, worker=context.worker)
        self._reported = found
        if self._unhandled_after_ms is not None:
            for type in sorted(found):
                await self._fail_unhandled(context, type, self._unhandled_after_ms)

    async def _fail_unhandled(self, context: RunnerContext, type: str, after_ms: int) -> None:
        """Fail one page of a type's jobs; the next check takes the next one."""
        limit = context.room(_MANY)
        op = fail_unhandled(self._store, type, after_ms, limit, context.now())
        report = await context.link.run_atomic(op)
        events = report.events("failed", f"no live worker handles {type}")
        _announce(context, self._notifier, events, report)


def _announce(
    context: RunnerContext, notifier: Notifier | None, events: Sequence[Event], report: EndReport
) -> None:
    """Count and report jobs that were ended because nobody ran them."""
    context.counts.processed += len(report.ended)
    if context.observer is not None:
        for each in events:
            context.observer.observe(each)
    if notifier is not None and report.ended:
        notifier.send(report.hints())


def unhandled_types(workers: Sequence[WorkerRecord], types: Sequence[TypeTotals]) -> list[str]:
    """Return the types with due jobs that none of the live workers handles."""
    handled = {name for worker in workers for name in worker.types}
    return [
        each.type for each in types if each.oldest_due_at is not None and each.type not in handled
    ]


class ClockMonitor:
    """Detects that the database's clock was set back, and moves due times that would wait for the old time.

    A running process compares with its own clock; one that has just started checks for records from the future.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._offset_us: int | None = None
        self._after: str | None = None

    async def check(self, context: RunnerContext) -> None:
        """Move due times if the clock was set back."""
        now = context.now()
        if now is None:
            now = await context.link.run(self._store.schema.clock())
        offset_us = now - int(context.clock.monotonic() * 1_000_000)
        before, self._offset_us = self._offset_us, offset_us
        if before is None:
            back_us = await context.link.run(ahead_us(self._store, now))
        else:
            back_us = before - offset_us
        if back_us > AHEAD_US:
            op = self._store.leases.heal(context.now())
            context.counts.updated += await context.link.run_atomic(op)
            self._after = FIRST_ID
        await self._heal_queue(context)

    async def _heal_queue(self, context: RunnerContext) -> None:
        """Go through the queue; the next tick continues where the budget ended."""
        while self._after is not None and not context.budget.is_exhausted(context.now_ms()):
            op = self._store.leases.heal_queue(self._after, context.now())
            page = await context.link.run_atomic(op)
            context.counts.updated += page.healed
            self._after = page.last


class RetentionRunner:
    """Removes what is old enough, for a while in each tick, and pauses once it has seen everything."""

    name = "retention"
    max_ms: int | None = None

    def __init__(
        self,
        store: Store,
        ages: Ages,
        every_ms: int = RETENTION_EVERY_MS,
        leaves_chains: bool = False,
    ) -> None:
        """Leave ended chains alone where an archive removes them: this application's, as it says, or another's."""
        self._store = store
        self._ages = ages
        self._leaves_chains = leaves_chains
        self._every_ms = every_ms
        self._after = self._dead_after = FIRST_ID
        self._paused_until_ms = 0
        self._fold_at_ms = 0

    async def run(self, context: RunnerContext) -> RunnerReport:
        await self._fold(context)
        if context.mode == "background" and context.now_ms() < self._paused_until_ms:
            return RunnerReport()
        is_left_to_archive = self._leaves_chains or await self._is_archived(context)
        if is_left_to_archive or await self._remove_for_a_while(context):
            self._after = self._dead_after = FIRST_ID
            self._paused_until_ms = context.now_ms() + self._every_ms
            op = remove_records(self._store, self._ages, context.room(_MANY), context.now())
            context.counts.updated += await context.link.run_atomic(op)
        return context.counts

    async def _remove_for_a_while(self, context: RunnerContext) -> bool:
        """Remove batch after batch until the time is up or all were seen; return whether they were.

        After each batch others have the database and its disk to themselves for as long as the batch took.
        """
        until_ms = context.now_ms() + REMOVE_FOR_MS[context.mode]
        while True:
            began = context.clock.monotonic()
            if await self._remove(context):
                return True
            took_s = context.clock.monotonic() - began
            is_over = context.now_ms() >= until_ms or context.budget.is_exhausted(context.now_ms())
            if is_over or (took_s > 0 and await context.clock.wait(context.stopping, took_s)):
                context.wake_in(0)
                return False

    async def _remove(self, context: RunnerContext) -> bool:
        """Remove a batch of dead letters, which are few, and one of other chains; return whether all were seen."""
        limit = context.budget.room(_MANY)
        op = remove_dead_letters(self._store, self._ages, self._dead_after, limit, context.now())
        page = await context.link.run_atomic(op)
        context.counts.processed += page.removed
        self._dead_after, is_done = page.last, page.seen < limit
        for rule in await context.link.run(self._store.keeps.rules()):
            page = await context.link.run_atomic(
                remove_by_rule(self._store, rule, limit, context.now())
            )
            context.counts.processed += page.removed
            is_done = is_done and page.seen == 0
        if not self._ages.chains:
            return is_done
        op = remove_chains(self._store, self._ages, self._after, limit, context.now())
        page = await context.link.run_atomic(op)
        context.counts.processed += page.removed
        self._after = page.last
        return is_done and page.seen < limit

    async def _is_archived(self, context: RunnerContext) -> bool:
        """Return whether another application of this database archives chains: what it has not archived must stay."""
        op = chains_are_archived(self._store, self._ages, context.now())
        return await context.link.run_atomic(op)

    async def _fold(self, context: RunnerContext) -> None:
        """Fold the counts of past minutes, in short transactions."""
        if context.mode == "background" and context.now_ms() < self._fold_at_ms:
            return
        self._fold_at_ms = context.now_ms() + FOLD_EVERY_MS
        folded = FOLD_AT_ONCE
        while folded == FOLD_AT_ONCE and not context.budget.is_exhausted(context.now_ms()):
            op = self._store.workers.fold_tally(FOLD_AT_ONCE, context.now())
            folded = await context.link.run_atomic(op)
        await self._sweep_partitions(context)

    async def _sweep_partitions(self, context: RunnerContext) -> None:
        """Remove partitions nobody needs, page by page."""
        after: str | None = ""
        while after is not None and not context.budget.is_exhausted(context.now_ms()):
            op = self._store.limits.sweep(after, context.now())
            after, _, _ = await context.link.run_atomic(op)
