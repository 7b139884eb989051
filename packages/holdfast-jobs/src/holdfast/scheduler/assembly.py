"""Builds ticks and background modes from an application and its settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from holdfast.commands.retention import ages_of
from holdfast.core.cycle import CycleSpec
from holdfast.core.events import Observer
from holdfast.notify.base import Notifier
from holdfast.scheduler.background import Background, LoopDelays
from holdfast.scheduler.cycle_run import Shard, WrapRun, wrap_nothing
from holdfast.scheduler.cycle_runner import CycleResources, CycleRunner, CycleStates, stored_name
from holdfast.scheduler.maintenance import ReaperRunner, RetentionRunner, WorkerReaperRunner
from holdfast.scheduler.runner import (
    Mode,
    Now,
    Runner,
    concurrency_of,
    database_time,
    single_tick_id,
)
from holdfast.scheduler.tick import Passes, Tick, TickOptions
from holdfast.scheduler.worker_runner import DrainingOutbox, StreamingOutbox
from holdfast.settings import Settings
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.worker.clock import Clock, SystemClock
from holdfast.worker.handler_threads import HandlerThreads
from holdfast.worker.options import WorkerOptions, embedded_options, worker_options
from holdfast.worker.worker import Worker

P = TypeVar("P", bound=Passes)
MakeWorker = Callable[[WorkerOptions, Sequence[str] | None], Worker]
"""Makes an application's worker for all its job types, or for those named."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """Everything that a tick or a background mode of an application is made of."""

    database: Database
    settings: Settings
    make_worker: MakeWorker
    cycles: Sequence[CycleSpec] = ()
    runners: Sequence[Runner] = ()
    wrap_run: WrapRun = wrap_nothing
    notifier: Notifier | None = None
    observer: Observer | None = None
    leaves_chains: bool = False
    clock: Clock = field(default_factory=SystemClock)
    now: Now = database_time

    def tick(self, names: tuple[str, ...] | None = None) -> Tick:
        """Make a tick that drains the outbox itself, for `holdfast tick` and run-once."""
        options = worker_options(self.settings)

        def make_drainer(items: int, claim_s: float, total_s: float) -> Worker:
            limits = replace(
                options,
                stop_when_idle=True,
                reaps=False,
                max_items=items,
                deadline_s=claim_s,
                handlers_s=total_s,
            )
            return self.make_worker(limits, None)

        worker_id = single_tick_id(options.name, new_id()[-12:])
        outbox = DrainingOutbox(make_drainer)
        return self._passes(Tick, self._reaper(), outbox, worker_id, "tick", names)

    def background(self, embedded: bool = False) -> Background:
        """Make the background mode, with the options of a worker inside a web application if asked."""
        settings = self.settings
        options = embedded_options(settings) if embedded else worker_options(settings)
        names = settings.worker.tick_runners
        is_streaming = names is None or "outbox" in names
        worker = self.make_worker(options, None if is_streaming else ())
        reaper = WorkerReaperRunner(
            self.database.store,
            worker.counters,
            self.notifier,
            settings.holdfast.unhandled_after_ms,
        )
        outbox = StreamingOutbox(worker.counters)
        passes = self._passes(Passes, reaper, outbox, worker.id, "background", None)
        own = settings.worker
        delays = LoopDelays(
            busy_ms=own.busy_loop_delay_ms,
            idle_min_ms=own.idle_backoff_min_ms,
            idle_max_ms=own.idle_backoff_max_ms,
            jitter_ms=own.idle_backoff_jitter_ms,
            error_ms=own.tick_loop_error_backoff_ms,
            error_jitter_ms=own.tick_loop_max_jitter_ms,
        )
        return Background(
            passes,
            worker,
            delays,
            shutdown_s=own.shutdown_timeout_ms / 1000,
            clock=self.clock,
            notifier=self.notifier,
        )

    def _passes(
        self,
        kind: type[P],
        reaper: Runner,
        outbox: Runner,
        worker_id: str,
        mode: Mode,
        names: tuple[str, ...] | None,
    ) -> P:
        own = self.settings.worker
        ages, store = ages_of(self.settings), self.database.store
        threads = HandlerThreads(max(1, len(self.cycles)), "holdfast-cycle")
        return kind(
            self.database,
            [
                reaper,
                *(each for each in self.runners if concurrency_of(each) == "leading"),
                outbox,
                *self._cycles(threads),
                *(each for each in self.runners if concurrency_of(each) != "leading"),
                RetentionRunner(store, ages, leaves_chains=self.leaves_chains),
            ],
            worker_id,
            TickOptions(
                names=names or own.tick_runners,
                overall_ms=own.tick_overall_max_ms,
                runner_ms=own.tick_runner_max_ms,
                items=own.tick_runner_max_items,
                at_once=self.settings.holdfast.slots,
                statement_timeout_ms=self.settings.holdfast.statement_timeout_ms,
            ),
            mode=mode,
            clock=self.clock,
            observer=self.observer,
            now=self.now,
            threads=threads,
        )

    def _reaper(self) -> ReaperRunner:
        own = self.settings.holdfast
        return ReaperRunner(
            self.database.store,
            own.reaper_batch,
            own.poison_limit,
            notifier=self.notifier,
            interval_s=self.settings.outbox.reaper_interval_ms / 1000,
            unhandled_after_ms=own.unhandled_after_ms,
        )

    def _cycles(self, threads: HandlerThreads) -> list[CycleRunner]:
        own = self.settings.worker
        shard = None
        if own.tick_shard_index is not None and own.tick_shard_count is not None:
            shard = Shard(own.tick_shard_index, own.tick_shard_count)
        states = CycleStates(
            self.database.store, {stored_name(each, shard): each for each in self.cycles}
        )
        lease_ms = self.settings.outbox.lease_duration_ms
        resources = CycleResources(self.database, states, threads, lease_ms, shard, self.wrap_run)
        return [CycleRunner(each, resources) for each in self.cycles]
