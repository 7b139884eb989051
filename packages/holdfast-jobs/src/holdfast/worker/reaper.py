"""Recovers what would otherwise be left behind: jobs of dead workers, of lost claims, late events, and dead rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

from holdfast.commands.attempts import ReapReport, reap_leases, returning_within_ms
from holdfast.commands.replay import continue_replay
from holdfast.commands.retention import FIRST_ID, declare_keeps
from holdfast.commands.start import (
    FAN_OUT_BATCH,
    NOTHING,
    Delivery,
    deliver_waiting,
    on_failed_types,
    subscribe_handlers,
    subscriptions_of,
)
from holdfast.commands.unreadable import REREAD_BATCH, reread_jobs
from holdfast.core.instants import Instant
from holdfast.core.records import Swept
from holdfast.settings import Settings
from holdfast.storage.database import Database, Link
from holdfast.storage.store import Store
from holdfast.worker.background_loops import BackgroundLoop
from holdfast.worker.clock import Clock, SystemClock
from holdfast.worker.options import PollBackoff
from holdfast.worker.worker_context import WorkerContext

if TYPE_CHECKING:
    from holdfast.worker.heartbeat import HeartbeatEvents

OnReaped = Callable[[ReapReport], None]


class Reaper(BackgroundLoop):
    """Recovers the jobs of dead workers, of all types, on a timer of its own; needs no slot."""

    def __init__(self, context: WorkerContext, link: Link, events: HeartbeatEvents) -> None:
        super().__init__(context, link)
        self._events = events
        self._interval = context.timings.reaper_interval_ms / 1000
        self._guard = OutageGuard(context.store, context.clock, self._interval)

    async def run(self) -> None:
        """Reap at once, then at every interval, a little apart from other replicas."""
        context, clock = self._context, self._context.clock
        while not self._stopping.is_set():
            with context.health.report(self._link.purpose):
                if await self._guard.is_calm(self._link, context.health.unreachable_at):
                    await self._reap()
            await clock.wait(self._stopping, self._interval * (0.9 + clock.random() * 0.1))

    async def _reap(self) -> None:
        context, options = self._context, self._context.options
        began = context.clock.monotonic()
        told = options.reaper_batch, options.poison_limit, self._events.on_reaped
        count = await reap_all(self._link, context.store, *told, lambda: self._guard.looked_at)
        context.emitter.emit_reaper_ran(count, context.clock.monotonic() - began)


async def reap_all(
    link: Link,
    store: Store,
    batch: int,
    poison: int,
    on_reaped: OnReaped,
    now: Callable[[], Instant | None] = lambda: None,
    is_enough: Callable[[], bool] = lambda: False,
) -> int:
    """Reap every expired lease, each page in a transaction of its own; return how many jobs were recovered."""
    after: tuple[Instant, str] | None = None
    count = 0
    while True:
        report = await link.run_atomic(reap_leases(store, batch, poison, after, now()))
        if report.page.reaped:
            count += len(report.page.reaped)
            on_reaped(report)
        if report.page.leases < batch or is_enough():
            return count
        after = report.page.last


async def reap_once(
    database: Database,
    settings: Settings,
    on_reaped: OnReaped,
    on_wait: Callable[[float], None] = lambda seconds: None,
) -> int:
    """Reap for a command; after an outage workers get an interval to return first, which `on_wait` is told."""
    own, interval_s = settings.holdfast, settings.outbox.reaper_interval_ms / 1000
    link, clock = database.link("reaper", own.statement_timeout_ms), SystemClock()
    try:
        limits = own.reaper_batch, own.poison_limit
        guard = OutageGuard(database.store, clock, interval_s)
        if not await guard.is_calm(link):
            on_wait(interval_s)
            await clock.sleep(interval_s)
        return await reap_all(link, database.store, *limits, on_reaped, lambda: guard.looked_at)
    finally:
        await link.close()


class OutageGuard:
    """Whether what has expired was abandoned, as far as this process and the fleet's heartbeats can tell.

    Workers that lost the database need an interval to renew or give back what they hold; reaped at once, their jobs
    would count as crashed although no worker died.
    """

    def __init__(self, store: Store, clock: Clock, interval_s: float) -> None:
        self._store = store
        self._clock = clock
        # Reapers look a little more often than once an interval.
        self._patience_s = interval_s * 0.9
        self._calm_since = float("-inf")
        self._returning_since: float | None = None
        self.looked_at: Instant | None = None

    async def is_calm(
        self, link: Link, unreachable_at: float = float("-inf"), now: Instant | None = None
    ) -> bool:
        """Return whether what expired by `looked_at`, and by no later jump of the clock, may be reaped now."""
        asked_at = self._clock.monotonic()
        if unreachable_at > self._calm_since:
            await link.run(self._store.schema.clock())
            self._calm_since = asked_at
            return False
        if asked_at - self._calm_since < self._patience_s:
            return False
        present = await link.run(self._store.schema.clock()) if now is None else now
        self.looked_at = present
        op = returning_within_ms(self._store, int(self._patience_s * 1000), present)
        within_ms = await link.run(op)
        if not within_ms:
            self._returning_since = None
            return True
        if self._returning_since is None:
            self._returning_since = asked_at
        # A worker that did not come back in a time that we saw ourselves is gone.
        return asked_at - self._returning_since >= within_ms / 1000


class OrphanedClaims(BackgroundLoop):
    """Gives back jobs that a claim took but that are unknown here, because its answer was lost."""

    def __init__(self, context: WorkerContext, link: Link, events: HeartbeatEvents) -> None:
        super().__init__(context, link, context.wakes.orphans)
        self._events = events
        self._backoff = PollBackoff(context.options)

    async def run(self) -> None:
        """Give back until stopped and nothing is left; an unreachable database is tried again."""
        held_leases = self._context.held_leases
        while True:
            await self._wake.wait()
            self._wake.clear()
            while tokens := held_leases.take_unanswered():
                if not await self._give_back(tokens):
                    await self._back_off()
            if self._stopping.is_set():
                return

    async def _back_off(self) -> None:
        """Wait before the next try; when stopped, try once more at once."""
        clock = self._context.clock
        seconds = self._backoff.error_s(clock.random())
        if self._stopping.is_set():
            await clock.sleep(seconds)
        else:
            await clock.wait(self._stopping, seconds)

    async def _give_back(self, tokens: list[str]) -> bool:
        context = self._context
        try:
            released = await self._link.run(context.store.leases.release(tokens))
        except BaseException as error:
            context.held_leases.add_unanswered(tokens)
            if not isinstance(error, Exception):
                raise
            context.health.report_error(self._link.purpose, error)
            return False
        context.health.report_ok(self._link.purpose)
        self._backoff.note_found(len(released))
        if released:
            self._events.on_released(released)
        return True


FIRST_REPLAYS = 10
"""So many batches of earlier events are delivered before a worker's first claim; the rest meanwhile."""


class LateDeliveries(BackgroundLoop):
    """Delivers events that were published before their handler subscribed, or while it did.

    Subscribes a worker's handlers before its first claim, then checks for waiting events at the heartbeat's interval.
    """

    def __init__(self, context: WorkerContext, link: Link, events: HeartbeatEvents) -> None:
        super().__init__(context, link)
        self._events = events
        self._subscriptions = subscriptions_of(context.types.values())
        self._replays = [each for each in self._subscriptions if each.replay_after is not None]

    async def subscribe(self, link: Link) -> None:
        """Register handlers and how long chains are kept; deliver what waited. Raises: the database's errors."""
        await link.run_atomic(declare_keeps(self._context.store, self._context.types.values()))
        names = on_failed_types(self._context.types.values())
        if names:
            await link.run(self._context.store.on_failed.declare(names))
        if self._subscriptions:
            op = subscribe_handlers(self._context.store, self._subscriptions)
            for delivery in await link.run_atomic(op):
                self._report(delivery)
            await self._deliver(link)
            await self._replay(link, FIRST_REPLAYS)

    async def reread(self, link: Link) -> None:
        """Make jobs due that earlier code could not read and this code can. Raises: the database's errors."""
        after, seen = FIRST_ID, REREAD_BATCH
        while seen == REREAD_BATCH:
            page = await link.run_atomic(
                reread_jobs(self._context.store, self._context.types, after)
            )
            after, seen = page.last, page.seen

    async def run(self) -> None:
        """Deliver what waits until stopped."""
        clock, interval = self._context.clock, self._context.timings.heartbeat_ms / 1000
        while self._subscriptions and not await clock.wait(self._stopping, interval):
            with self._context.health.report(self._link.purpose):
                await self._deliver(self._link)
                await self._replay(self._link)

    async def _replay(self, link: Link, max_pages: int | None = None) -> None:
        """Give new subscriptions the events from before them, batch after batch; others pay nothing for this."""
        for subscription in self._replays:
            for number in count():
                page = await link.run_atomic(continue_replay(self._context.store, subscription))
                if page is None:
                    break
                self._report(Delivery(page.copied, (subscription.job_type,), NOTHING.end))
                if page.is_last or number + 1 == max_pages or self._stopping.is_set():
                    break

    async def _deliver(self, link: Link) -> None:
        """Deliver batch after batch, so that a long wait is caught up at once."""
        for event in sorted({each.event for each in self._subscriptions}):
            delivered = FAN_OUT_BATCH
            while delivered == FAN_OUT_BATCH:
                op = deliver_waiting(self._context.store, event)
                delivery = await link.run_atomic(op)
                delivered = delivery.count
                self._report(delivery)

    def _report(self, delivery: Delivery) -> None:
        if delivery.count:
            self._events.on_delivered(delivery)


VACUUM_EVERY_S = 0.25
VACUUM_PAUSE_MAX_S = 60.0
VACUUM_IN_VAIN_S = 1.0
"""The longest pause while a snapshot or another vacuum is in the way, unless runs cost much: both may end soon."""

VACUUM_COST_FACTOR = 10
"""Two runs are so many times their own cost apart: a large table takes long."""

VACUUM_COSTS = 5
"""The cost is the least of so many runs: one that something else held up says nothing about the table."""

JOBS_BETWEEN = 1_000
"""Each process checks after so many jobs of its own, so that a fleet of any size checks about as often."""

FEW_DEAD = 5_000
"""Not worth a run; it costs less than a microsecond per dead row, and less the more rows at once."""


class VacuumPace:
    """How long to wait between two runs, by what the latest cost and what they could not remove."""

    def __init__(self) -> None:
        self._costs: deque[float] = deque(maxlen=VACUUM_COSTS)
        self._in_vain = 0

    def pause_after(self, cost_s: float, swept: Swept) -> float:
        """Return the seconds until the next run."""
        self._costs.append(cost_s)
        pause = min(VACUUM_PAUSE_MAX_S, VACUUM_COST_FACTOR * min(self._costs))
        # What an old snapshot still sees is left, and a table that is being vacuumed is skipped.
        self._in_vain = self._in_vain + 1 if swept.left > swept.dead // 2 else 0
        again = VACUUM_EVERY_S * (1 << min(self._in_vain, 8)) / 2
        return max(VACUUM_EVERY_S, pause, min(VACUUM_IN_VAIN_S, again))


class Vacuum(BackgroundLoop):
    """A background loop. An idle worker queries nothing, and of several that try at once one vacuums."""

    def __init__(self, context: WorkerContext, link: Link) -> None:
        super().__init__(context, link)
        self._pause = VACUUM_EVERY_S
        self._pace = VacuumPace()
        self._seen = 0

    async def run(self) -> None:
        """Check after every so many jobs until stopped."""
        while not await self._context.clock.wait(self._stopping, self._pause):
            ended = self._context.counters.processed
            if ended - self._seen < JOBS_BETWEEN:
                continue
            self._seen = ended
            try:
                await self._vacuum()
            except Exception as error:
                self._pause = VACUUM_PAUSE_MAX_S
                self._context.health.report_error(self._link.purpose, error)
            else:
                self._context.health.report_ok(self._link.purpose)

    async def _vacuum(self) -> None:
        clock = self._context.clock
        began = clock.monotonic()
        swept = await self._link.run(self._context.store.server_stats.sweep(FEW_DEAD))
        if swept is None:
            self._pause = VACUUM_EVERY_S
            return
        self._pause = self._pace.pause_after(clock.monotonic() - began, swept)
