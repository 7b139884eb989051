"""A worker: claims, runs and records jobs of some types in one process, until it is stopped.

claim   `Claimer` claims due jobs under a lease and puts them into the `Backlog`. `PlainClaims` and `LimitedClaims`
        know what to ask for, `Admission` when enough is under way, and `Quarantine` holds a job whose workers keep
        dying until it can run alone.
run     `Slots` take attempts from the backlog, and `Executor` calls the handler, in `HandlerThreads` if it is sync.
        `OutcomeResolver` turns what the handler returns or raises into the write that records it.
        A handler that calls `job.step` is a durable function: `Functions` replays it and records its steps.
record  `Completer` flushes these writes in batches, `SlowCompleter` those that may wait for locks. After the commit
        `Recorder` emits events and sends hints.
renew   `Heartbeat` renews leases and `Deadlines` enforces timeouts, in a thread of their own, beside `Reaper`,
        `OrphanedClaims`, `LateDeliveries`, `Redrives`, `SignalRouter`, `Vacuum` and `Watchdog`.
drain   Nothing new is claimed, unstarted jobs go back, handlers end or are interrupted, their outcomes are recorded.

All parts share a `WorkerContext`, with the `Wakes` that they wake each other with; a job on its way through them is an
`Attempt`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent import futures
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.client.start_targets import Targets, open_targets
from holdfast.commands.identity import check_identity
from holdfast.core.errors import DatabaseBusy, DatabaseUnreachable, NoConnection, RoleRefused
from holdfast.core.events import Observer
from holdfast.core.registry import JobType
from holdfast.notify.base import Notifier
from holdfast.steps.functions import Functions
from holdfast.steps.recorder import StepRecorder
from holdfast.steps.router import SignalRouter
from holdfast.storage.database import Database, Link
from holdfast.worker.admission import Admission
from holdfast.worker.attempt import Attempt, Backlog, ReleaseOverdue
from holdfast.worker.background_loops import BackgroundLoop, run_loops
from holdfast.worker.claimer import Claimer
from holdfast.worker.clock import Clock, SystemClock, all_ended, ends_before
from holdfast.worker.completer import Completer, Recorder, SlowCompleter
from holdfast.worker.counters import Counters
from holdfast.worker.executor import Executor, HandlerCalls
from holdfast.worker.handler_threads import HandlerThreads
from holdfast.worker.heartbeat import Deadlines, Heartbeat, HeartbeatEvents, encode_counters
from holdfast.worker.job import Job, Middleware
from holdfast.worker.notifications import WorkerHints
from holdfast.worker.options import PollBackoff, WorkerOptions
from holdfast.worker.paced_redrives import Redrives
from holdfast.worker.processes import ProcessHandlers
from holdfast.worker.quarantine import Quarantine
from holdfast.worker.reaper import LateDeliveries, OrphanedClaims, Reaper, Vacuum
from holdfast.worker.resolve_outcome import OutcomeResolver, locate_handler
from holdfast.worker.slots import Slots
from holdfast.worker.suspect_runs import SuspectRuns
from holdfast.worker.watchdog import LoopMonitor, Watchdog
from holdfast.worker.worker_context import WorkerContext

LOOP_LINKS = ("claim", "complete", "fan-in", "steps")
BACKGROUND_LINKS = ("heartbeat", "reaper")
LAST_WRITES_S = 5.0
ABORT_GRACE_S = 1.0


class WorkerReport(msgspec.Struct, frozen=True):
    """Why a worker ended and what it left behind; abandoned attempts are left to lease expiry."""

    reason: str
    abandoned: int
    released: int
    counters: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 only when nothing was abandoned."""
        return 1 if self.abandoned else 0


async def _no_companions(reason: str) -> int:
    return 0


class Worker:
    """Claims, runs and records jobs. It is run once; `stop` may be called from any thread and at any time."""

    def __init__(
        self,
        database: Database,
        types: Mapping[str, JobType],
        options: WorkerOptions | None = None,
        *,
        notifier: Notifier | None = None,
        observer: Observer | None = None,
        middlewares: Sequence[Middleware] = (),
        targets: Targets | None = None,
        clock: Clock | None = None,
        threads: futures.Executor | None = None,
    ) -> None:
        """Raises: HF017, HF018, HF019 for timings that do not fit, HandlerInvalid.

        `targets` knows the types a chain may continue with, without it any name will do; `threads` runs the sync
        handlers.
        """
        self._context = WorkerContext.create(
            database, types, options or WorkerOptions(), observer, clock or SystemClock()
        )
        self._stop, self._threads = self._context.stop, self._context.threads
        self._released = 0
        self._abandoned = 0
        self._links = self._make_links()
        self._targets = targets or open_targets(types.values())
        self._resolver = OutcomeResolver(self.id, self._context.clock, self._targets)
        self._build_claiming(notifier)
        self._build_recording()
        self._build_running(middlewares, threads)
        self._build_background()

    @property
    def id(self) -> str:
        """The worker's own name: unique for each start."""
        return self._context.id

    @property
    def counters(self) -> Counters:
        """What the worker has done since its start."""
        return self._context.counters

    @property
    def last_error(self) -> str | None:
        """The latest error that a connection to the database began to fail with."""
        return self._context.emitter.last_error

    @property
    def running(self) -> int:
        """How many attempts run now."""
        return len(self._slots.running)

    @property
    def holding(self) -> list[str]:
        """What runs now or was abandoned, in words: the type and the job of each attempt, how long, and where it is."""
        now = self._context.clock.monotonic()
        attempts = set(self._slots.running) | self._slots.abandoned
        return sorted(describe_attempt(each, now) for each in attempts if each.is_started)

    async def run(
        self, end_companions: Callable[[str], Awaitable[int]] = _no_companions
    ) -> WorkerReport:
        """Work until stopped, or until the options say that it is enough.

        `end_companions` is called with the reason of the end; it ends what else works in the worker's name and returns
        how much of that was abandoned, before `worker_stopped` says so.
        Raises: WrongDatabase, CopiedDatabase; defects of our own.
        """
        self._threads.bind()
        self._functions.bind()
        if not await self._reach_database():
            await self._close_links("claim", "complete")
            return self._report()
        emitter, options = self._context.emitter, self._context.options
        self._hints.listen(self._claimer, self._context.wakes)
        links = [self._links[purpose] for purpose in BACKGROUND_LINKS]
        self._threads.start(run_loops(self._background_loops, links))
        claiming = asyncio.create_task(self._claimer.run(), name="holdfast claimer")
        loops = self._start_loops()
        slots = self._slots.start()
        emitter.emit(
            "worker_started",
            slots=options.slots,
            types=sorted(self._context.types),
            lease_ms=options.lease.duration_ms,
            heartbeat_ms=self._context.timings.heartbeat_ms,
        )
        try:
            await self._wait_until_over(claiming, [*loops, *slots])
        except Exception:
            self._stop.begin("defect")
            raise
        finally:
            emitter.emit("worker_stopping", reason=self._stop.reason, running=self.running)
            await self._drain(claiming, loops)
            emitter.emit_summary(self.running)
            emitter.emit(
                "worker_stopped",
                reason=self._stop.reason,
                abandoned=self._abandoned + await end_companions(self._stop.reason),
                released=self._released,
            )
        return self._report()

    def stop(self, reason: str = "asked") -> None:
        """Claim nothing new and end when the running handlers have; the second call interrupts them."""
        self.expect_end()
        self._threads.to_loop(self._stop.request, reason)

    def expect_end(self) -> None:
        """Note that the worker is to end, in case its loop is too busy to see it. From any thread."""
        self._threads.to_background(self._watchdog.expect_end)

    def tell_shortage(self, error: NoConnection) -> None:
        """Tell that the server has no room for a connection of this process, unless that is known."""
        self._context.connections.tell(error)

    def answer(self, act: Callable[[], None]) -> None:
        """Call back from the heartbeat's thread once the loop has had its turn, which proves both alive."""
        self._threads.to_loop(self._threads.to_background, act)

    def on_hopeless(self, act: Callable[[], None]) -> None:
        """Call something, on another thread, when a handler still blocks the loop after the shutdown timeout."""
        self._watchdog.on_hopeless = act

    def on_boundary(self, is_killed: Callable[[str], bool]) -> None:
        """Ask at each boundary of a durable function, in its thread, whether to leave it there as if killed."""
        self._functions.on_boundary = is_killed

    # ---- The parts, and what connects them

    def _make_links(self) -> dict[str, Link]:
        """Make a link for each purpose; none of them is connected yet."""
        timeout_ms = self._context.options.statement_timeout_ms
        return {
            purpose: self._context.database.link(purpose, timeout_ms)
            for purpose in (*LOOP_LINKS, *BACKGROUND_LINKS)
        }

    def _build_claiming(self, notifier: Notifier | None) -> None:
        context = self._context
        self._hints = WorkerHints(context.id, notifier)
        self._backoff = PollBackoff(context.options)
        self._admission = Admission(context)
        self._backlog = Backlog(context.policies, self._admission)
        self._quarantine = Quarantine(context)
        self._claimer = Claimer(
            context,
            self._links["claim"],
            self._backlog,
            self._quarantine,
            self._backoff,
            self._admission,
        )

    def _build_recording(self) -> None:
        context, links = self._context, self._links
        self._recorder = Recorder(
            context, self._claimer, self._hints, self._admission, self._backlog
        )
        self._slow_completer = SlowCompleter(context, links["fan-in"], self._recorder)
        self._completer = Completer(
            context,
            links["complete"],
            self._recorder,
            self._claimer,
            self._slow_completer,
            self._admission,
        )

    def _build_running(
        self, middlewares: Sequence[Middleware], threads: futures.Executor | None
    ) -> None:
        context = self._context
        self._handler_threads = HandlerThreads(context.options.slots, "holdfast-handler", threads)
        self._processes = ProcessHandlers(self._begin_in_process)
        self._calls = HandlerCalls(context, middlewares, self._handler_threads, self._processes)
        self._step_recorder = StepRecorder(context, self._links["steps"])
        self._functions = Functions(context, self._step_recorder, self._targets, self._hints)
        # A test's own thread does what the loop needs done there, while its handler waits for the loop.
        self._functions.wait = getattr(threads, "wait", futures.Future.result)
        self._slots = Slots(
            context,
            self._backlog,
            Executor(context, self._calls, self._resolver, self._functions),
            self._completer,
            self._claimer,
            self._admission,
        )

    def _begin_in_process(self, job: Job[Any]) -> None:
        self._slots.restart_timeout(job.attempt_state)
        self._calls.check(job)

    def _build_background(self) -> None:
        context, beating, reaping = self._context, self._links["heartbeat"], self._links["reaper"]
        events = HeartbeatEvents(
            context,
            self._claimer,
            self._backlog,
            self._completer,
            self._recorder,
            self._hints,
            self._admission,
        )
        self._late_deliveries = LateDeliveries(context, reaping, events)
        self._redrives = Redrives(context, reaping, events)
        self._router = SignalRouter(context, reaping, events)
        self._watchdog = Watchdog(context, reaping, self._slots, events)
        self._background_loops: list[BackgroundLoop] = [
            Heartbeat(context, beating, events),
            Deadlines(context, beating, self._resolver, events),
            OrphanedClaims(context, reaping, events),
            self._late_deliveries,
            self._redrives,
            self._router,
            Vacuum(context, reaping),
            self._watchdog,
        ]
        if context.options.reaps:
            self._background_loops.append(Reaper(context, reaping, events))

    # ---- From the start to the word to stop

    async def _reach_database(self) -> bool:
        """Wait for a database that is not there yet, read what was set in it, and subscribe.

        False when stopped meanwhile.
        """
        context = self._context
        # Subscriptions must outlive the server, and what the claiming link commits may not.
        claiming, writing = self._links["claim"], self._links["complete"]
        while not self._stop.begun.is_set():
            try:
                identity = await writing.run(check_identity(context.store))
                settings = await claiming.run(context.store.workers.settings())
                is_paused = identity is not None and identity.paused
                context.policies.configure({each.type: each for each in settings}, is_paused)
                self._admission.await_standby(identity is not None and identity.awaits_standby)
                await self._late_deliveries.subscribe(writing)
                with suppress(RoleRefused):
                    # Without these rights, what could not be read is only tried again later, and redrives wait.
                    await self._late_deliveries.reread(writing)
                    await self._redrives.step(writing)
                    await self._router.route(writing)
            except (DatabaseUnreachable, DatabaseBusy) as error:
                context.health.report_error(claiming.purpose, error)
                pause = self._backoff.error_s(context.clock.random())
                await context.clock.wait(self._stop.begun, pause)
            except BaseException:
                await self._close_links("claim", "complete")
                raise
            else:
                context.health.report_ok(claiming.purpose)
                return True
        return False

    def _start_loops(self) -> list[asyncio.Task[None]]:
        """Start what runs on the worker's own loop beside the claimer and the slots."""
        context, completer = self._context, self._completer
        link, slots, backlog = self._links["complete"], self._slots, self._backlog
        loops = (
            completer,
            self._slow_completer,
            SuspectRuns(context, link, self._quarantine, slots, backlog, completer),
            LoopMonitor(context, slots, self._hints, self._backoff),
            ReleaseOverdue(context.clock, backlog, completer),
        )
        return [
            asyncio.create_task(each.run(), name=f"holdfast {type(each).__name__.lower()}")
            for each in loops
        ]

    async def _wait_until_over(
        self, claiming: asyncio.Task[str], others: list[asyncio.Task[None]]
    ) -> None:
        """Wait for a stop, the deadline or the end of the work. Raises: what ended a loop, which is a defect."""
        context = self._context
        background = asyncio.create_task(self._threads.wait_ended())
        stopped = asyncio.create_task(
            context.clock.wait(self._stop.begun, context.options.deadline_s), name="holdfast stop"
        )
        try:
            watched: set[asyncio.Task[Any]] = {stopped, claiming, background, *others}
            done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
            if claiming in done:
                self._stop.begin(claiming.result())
            elif stopped in done and not stopped.result():
                self._stop.begin("deadline")
        finally:
            for task in (stopped, background):
                task.cancel()
            await asyncio.gather(stopped, background, return_exceptions=True)

    # ---- Drain: leases are renewed until the last handler has ended

    async def _drain(self, claiming: asyncio.Task[str], loops: list[asyncio.Task[None]]) -> None:
        """End the work and then the loops; a cancellation abandons the handlers."""
        try:
            await self._end_work(claiming)
        except BaseException:
            await self._slots.abandon()
            raise
        finally:
            await self._end_loops([claiming, *loops])
            await self._close()

    async def _end_work(self, claiming: asyncio.Task[str]) -> None:
        clock, options = self._context.clock, self._context.options
        self._claimer.stop()
        self._completer.end_soon()
        self._release_unstarted()
        await all_ended(clock, [claiming], options.statement_timeout_ms / 1000)
        # A claim that was under way may have brought something.
        self._release_unstarted()
        await self._let_handlers_time_out()
        await self._end_handlers()
        await clock.wait(self._recorder.all_settled, LAST_WRITES_S)

    def _release_unstarted(self) -> None:
        """Give back what no slot has started, without costing an attempt."""
        unstarted = self._backlog.close() + self._quarantine.close()
        self._released += self._completer.release(unstarted)

    async def _let_handlers_time_out(self) -> None:
        """With `handlers_s`, let handlers run until then, unless the worker is asked to stop meanwhile."""
        slots, clock = self._slots, self._context.clock
        if slots.all_end_at == math.inf:
            return
        left = max(0.0, slots.all_end_at - clock.monotonic())
        has_ended = await ends_before(clock, slots.wait_ended(), self._stop.requested, left)
        if not has_ended and not self._stop.requested.is_set():
            # They were interrupted just now; those that obey are not to be interrupted by a shutdown as well.
            await slots.wait_ended(ABORT_GRACE_S)

    async def _end_handlers(self) -> None:
        """Wait for the running handlers up to the shutdown timeout, then interrupt them, then abandon them."""
        slots, clock = self._slots, self._context.clock
        is_late = clock.monotonic() >= slots.all_end_at
        shutdown_s = self._context.timings.shutdown_ms / 1000
        # Those that do not end by themselves have their last moment within the timeout, not after it.
        grace_s = min(ABORT_GRACE_S, shutdown_s / 4)
        wait_s = 0.0 if is_late else shutdown_s - grace_s
        if not await ends_before(clock, slots.wait_ended(), self._stop.now, wait_s):
            slots.interrupt()
            if not await slots.wait_ended(grace_s or ABORT_GRACE_S):
                await slots.abandon()

    async def _end_loops(self, loops: list[asyncio.Task[Any]]) -> None:
        """End the loops, the heartbeat last: one that went on renewing would keep jobs from all other workers."""
        for task in loops:
            task.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        ended = asyncio.create_task(self._threads.wait_ended())
        for each in self._background_loops:
            self._threads.to_background(each.stop)
        if not await all_ended(self._context.clock, [ended], LAST_WRITES_S):
            # What could not be given back in time is left to lease expiry.
            self._threads.cancel_background()
        await asyncio.gather(ended, return_exceptions=True)

    async def _close(self) -> None:
        context = self._context
        self._abandoned = self._count_abandoned()
        await self._hints.close()
        await self._completer.free_leases()
        await self._step_recorder.close()
        try:
            await self._links["complete"].run(
                context.store.workers.stop(context.id, encode_counters(context))
            )
        except Exception as error:
            context.health.report_error("complete", error)
        await self._close_links(*LOOP_LINKS)
        await self._processes.close()
        self._handler_threads.close()

    def _count_abandoned(self) -> int:
        """Count what is still leased in our name, or still runs."""
        held_leases, slots = self._context.held_leases, self._slots
        attempts = set(held_leases.attempts()) | slots.running | slots.abandoned
        return len(attempts) + (1 if held_leases.has_unanswered else 0)

    async def _close_links(self, *purposes: str) -> None:
        for purpose in purposes:
            await self._links[purpose].close()

    def _report(self) -> WorkerReport:
        counters = self._context.counters.as_dict()
        return WorkerReport(self._stop.reason, self._abandoned, self._released, counters)


def describe_attempt(attempt: Attempt, now: float) -> str:
    """Say of a running attempt what it is, for how long, and where."""
    claimed, task = attempt.claimed, attempt.own_task or attempt.task
    ran = "" if attempt.started_at is None else f", for {now - attempt.started_at:.0f} s"
    where = locate_handler(attempt.type.handler, None if task is None else task.get_coro())
    return f"{claimed.type} (job {claimed.id}{ran}{f', at {where}' if where else ''})"
