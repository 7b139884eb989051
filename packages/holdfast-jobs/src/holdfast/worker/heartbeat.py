"""Renews the worker's leases, learns which are lost, enforces deadlines, and reports that the worker is alive.

All of it runs in a thread of its own, so that a handler that blocks the worker's loop does not cost the leases.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

import msgspec

from holdfast.commands.attempts import (
    FinishReport,
    ReapReport,
    finish_unless_awaited,
    pending_types,
    reaped_hints,
)
from holdfast.commands.blockers import FanIn
from holdfast.commands.change import due_hints
from holdfast.commands.start import Delivery
from holdfast.core.declared_limits import encode_declared
from holdfast.core.events import Event
from holdfast.core.lease import default_heartbeat_ms, live_ms, local_deadline_ms
from holdfast.core.records import Finish, Held, Identity, JobRef, NewProgress, TypeSetting
from holdfast.core.worker_presence import (
    GIVES_UP_AFTER,
    SHORT_OF_CONNECTIONS,
    SignAnswer,
    WorkerSign,
)
from holdfast.notify.base import Hint
from holdfast.storage.database import Link
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.version import VERSION
from holdfast.worker.admission import Admission
from holdfast.worker.attempt import LOST, AbortReason, Attempt, Backlog, lost_reason
from holdfast.worker.background_loops import BackgroundLoop
from holdfast.worker.claimer import Claimer
from holdfast.worker.completer import Completer, Recorder
from holdfast.worker.held_leases import HeldLease
from holdfast.worker.notifications import WorkerHints
from holdfast.worker.resolve_outcome import OutcomeResolver
from holdfast.worker.worker_context import WorkerContext

RETRIES_AN_INTERVAL = 5


class Heartbeat(BackgroundLoop):
    """One beat renews all leases in one statement and reads the held ids in a second.

    Compared both ways: what we hold and the database does not is aborted with its reason; what the database says we
    hold and we do not know is given back.
    """

    def __init__(self, context: WorkerContext, link: Link, events: HeartbeatEvents) -> None:
        super().__init__(context, link, context.wakes.heartbeat)
        self._events = events
        self._interval = context.timings.heartbeat_ms / 1000
        self._reported: dict[str, NewProgress] = {}

    async def run(self) -> None:
        """Beat until stopped."""
        clock = self._context.clock
        while not self._stopping.is_set():
            self._wake.clear()
            began = clock.monotonic()
            pause = self._interval if await self._beat() else self._interval / RETRIES_AN_INTERVAL
            await clock.wait(self._wake, max(0.0, began + pause - clock.monotonic()))

    async def _beat(self) -> bool:
        try:
            await self._renew_leases()
            await self._compare_held()
            await self._report_progress()
            await self._report_presence()
        except Exception as error:
            self._context.health.report_error(self._link.purpose, error)
            return False
        self._context.health.report_ok(self._link.purpose)
        self._context.counters.heartbeats += 1
        return True

    async def _renew_leases(self) -> None:
        leases = {lease.token: lease for lease in self._context.held_leases.leases()}
        if not leases:
            return
        sent_ms = int(self._context.clock.monotonic() * 1000)
        renewed = await self._link.run(self._context.store.leases.renew(list(leases)))
        for token in renewed:
            lease = leases[token]
            lease.deadline = local_deadline_ms(sent_ms, lease.lease_ms) / 1000

    async def _compare_held(self) -> None:
        held_leases = self._context.held_leases
        before = held_leases.attempts()
        with held_leases.compare() as is_known:
            held = await self._link.run(self._context.store.leases.held(self._context.id))
            unknown = {each.token for each in held if not is_known(each.token)}
        ours = {(each.id, each.token) for each in held}
        missing = [each for each in before if (each.claimed.id, each.claimed.token) not in ours]
        if missing:
            await self._abort_lost(missing)
        if unknown:
            self._events.on_unknown_tokens(unknown)

    async def _abort_lost(self, missing: list[Attempt]) -> None:
        pairs = [Held(each.claimed.id, each.claimed.token) for each in missing]
        statuses = await self._link.run(self._context.store.jobs.lease_status(pairs))
        found = {(each.id, each.token): each for each in statuses}
        for attempt in sorted(missing, key=attrgetter("is_started")):
            reason = lost_reason(found[attempt.claimed.id, attempt.claimed.token])
            # What looks lost may be the very write of its outcome, and that finds out by itself.
            if reason is not None and not attempt.is_ending:
                self._events.on_lease_lost(attempt, reason)

    async def _report_progress(self) -> None:
        """Record how far attempts are, where that has changed; delete the progress of those that have ended."""
        progress = {
            each.claimed.id: NewProgress(
                each.claimed.id, each.claimed.token, each.claimed.fence, *each.progress
            )
            for each in self._context.held_leases.attempts()
            if each.progress is not None
        }
        new = [each for job_id, each in progress.items() if self._reported.get(job_id) != each]
        over = [each for job_id, each in self._reported.items() if job_id not in progress]
        if new:
            await self._link.run(self._context.store.leases.report(new))
        if over:
            await self._link.run(self._context.store.leases.forget(over))
        self._reported = progress

    async def _report_presence(self) -> None:
        """Read what was set at run time, and write that the worker is alive until well after the next beat."""
        store = self._context.store
        settings, identity = await self._link.run(_read_settings(store))
        ours = {each.type: each for each in settings if each.type in self._context.types}
        self._fit_interval(ours)
        sign = make_sign(self._context, int(self._interval * 1000))
        answer = await self._link.run(store.workers.sign(sign))
        self._events.on_presence(ours, identity, answer)

    def _fit_interval(self, settings: Mapping[str, TypeSetting]) -> None:
        """Beat fast enough for the leases set at run time, before the first of them is taken."""
        leases = [each.lease_ms for each in settings.values() if each.lease_ms is not None]
        fitting = [default_heartbeat_ms(min(leases))] if leases else []
        self._interval = min([self._context.timings.heartbeat_ms, *fitting]) / 1000


def _read_settings(store: Store) -> Op[tuple[list[TypeSetting], Identity | None]]:
    settings = yield from store.workers.settings()
    return settings, (yield from store.schema.identity())


def make_sign(context: WorkerContext, heartbeat_ms: int) -> WorkerSign:
    """Make the sign of life of a worker that beats so often."""
    leases = {name: each.lease for name, each in context.types.items()}
    return WorkerSign(
        id=context.id,
        name=context.options.name,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=VERSION,
        slots=context.options.slots,
        types=msgspec.json.encode(sorted(context.types)).decode(),
        counters=encode_counters(context),
        last_error=context.emitter.last_error,
        live_ms=live_ms(heartbeat_ms),
        timings=encode_timings(context),
        leases=msgspec.json.encode(
            {name: each.duration_ms for name, each in leases.items() if each is not None}
        ).decode(),
        limits=encode_declared(
            each.flow for each in context.types.values() if each.flow is not None
        ),
        reads=msgspec.json.encode(
            {name: each.version for name, each in context.types.items() if each.version > 1}
        ).decode(),
    )


def encode_timings(context: WorkerContext) -> str:
    """The worker's timings as they are stored with its presence, and when it gives up on what it cannot read."""
    timings: dict[str, int] = msgspec.to_builtins(context.timings)
    after_ms = context.options.unhandled_after_ms
    if after_ms is not None:
        timings[GIVES_UP_AFTER] = after_ms
    if context.connections.is_short:
        timings[SHORT_OF_CONNECTIONS] = 1
    return msgspec.json.encode(timings).decode()


def encode_counters(context: WorkerContext) -> str:
    """The worker's counters as they are stored with its presence."""
    return msgspec.json.encode(context.counters.as_dict()).decode()


class Deadlines(BackgroundLoop):
    """Stops what timed out, and what can no longer rely on its lease: each has a local deadline before its lease ends.

    It never waits for the database itself: a statement that hangs must not hide a deadline.
    """

    def __init__(
        self, context: WorkerContext, link: Link, resolver: OutcomeResolver, events: HeartbeatEvents
    ) -> None:
        self._expected = context.wakes.deadlines
        super().__init__(context, link, self._expected)
        self._resolver = resolver
        self._events = events
        self._recording: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Enforce deadlines until stopped."""
        clock = self._context.clock
        while not self._stopping.is_set():
            self._wake.clear()
            # Whatever begins while we check is expected, and wakes us.
            self._expected.next_at = math.inf
            next_at = self._expected.next_at = self._enforce(clock.monotonic())
            wait = None if next_at == math.inf else max(0.0, next_at - clock.monotonic())
            await clock.wait(self._wake, wait)
        if self._recording:
            await asyncio.gather(*self._recording)

    def _enforce(self, now: float) -> float:
        """Stop what is over by now; return when to check again."""
        coming = [math.inf]
        late: list[Attempt] = []
        for lease, held in self._context.held_leases.by_lease():
            attempts = [each for each in held if not each.is_ending]
            coming.append(self._check_lease(lease, attempts, now))
            for attempt in attempts:
                if attempt.timeout_at is None:
                    continue
                if now < attempt.timeout_at:
                    coming.append(attempt.timeout_at)
                elif attempt.take_ending("heartbeat"):
                    late.append(attempt)
        if late:
            self._time_out(late, now)
        return min(coming)

    def _check_lease(self, lease: HeldLease, attempts: list[Attempt], now: float) -> float:
        """Stop what a lease holds once it may have ended; return when that is."""
        unaware = [each for each in attempts if each.abort_reason is None]
        if not unaware:
            return math.inf
        if now < lease.deadline:
            return lease.deadline
        # Those that wait come first: a slot whose handler is stopped begins the next of them at once.
        for attempt in sorted(unaware, key=attrgetter("is_started")):
            self._events.on_lease_lost(attempt, "error")
        return math.inf

    def _time_out(self, late: list[Attempt], now: float) -> None:
        """Record timed-out attempts from here, because their loop may be blocked by the very handler."""
        finishes: dict[Attempt, Finish] = {}
        for attempt in late:
            attempt.abort("timeout", now)
            self._events.interrupt(attempt)
            finishes[attempt] = self._resolver.resolve_timeout(attempt, now)
        task = asyncio.create_task(self._record(finishes))
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)

    async def _record(self, finishes: dict[Attempt, Finish]) -> None:
        report, recorded = FinishReport([], FanIn([], [])), None
        is_one_statement = not any(each.on_failed for each in finishes.values())
        run = self._link.run if is_one_statement else self._link.run_atomic
        try:
            report = await run(finish_unless_awaited(self._context.store, list(finishes.values())))
            recorded = {each.id for each in report.accepted}
        except Exception as error:
            self._context.health.report_error(self._link.purpose, error)
        for attempt, finish in finishes.items():
            is_recorded = None if recorded is None else attempt.claimed.id in recorded
            self._events.on_timed_out(attempt, report.outcome_of(finish), is_recorded)


class HeartbeatEvents:
    """Takes what the background loops learn to the worker's loop.

    Every method is called on the heartbeat's thread. Abort signals are raised at once, from here: a handler that blocks
    the loop can still see them.
    """

    def __init__(
        self,
        context: WorkerContext,
        claimer: Claimer,
        backlog: Backlog,
        completer: Completer,
        recorder: Recorder,
        hints: WorkerHints,
        admission: Admission,
    ) -> None:
        self._context = context
        self._claimer = claimer
        self._backlog = backlog
        self._completer = completer
        self._recorder = recorder
        self._hints = hints
        self._admission = admission
        self._to_loop = context.threads.to_loop

    def on_lease_lost(self, attempt: Attempt, reason: AbortReason) -> None:
        """A lease is gone, or can no longer be relied on."""
        if not attempt.abort(reason, self._context.clock.monotonic()):
            return
        if reason in LOST:
            self._context.held_leases.remove_lost(attempt)
        self._context.emitter.emit_lost(attempt, reason)
        self.interrupt(attempt)

    def interrupt(self, attempt: Attempt) -> None:
        """Interrupt the handler of an aborted attempt."""
        self._to_loop(attempt.interrupt)

    def on_timed_out(self, attempt: Attempt, finish: Finish, is_recorded: bool | None) -> None:
        """An attempt timed out; its outcome is to be recorded, unless it is already. None when that is unknown."""
        if is_recorded:
            self._context.held_leases.remove([attempt])
            self._context.wakes.flushes.set_soon()
            self._to_loop(self._recorder.announce, attempt, finish)
        else:
            self._to_loop(self._completer.submit, attempt, finish, is_recorded is None)

    def on_unknown_tokens(self, tokens: set[str]) -> None:
        """The database says that we hold leases unknown here."""
        self._context.held_leases.add_unanswered(tokens)

    def on_released(self, jobs: Sequence[JobRef]) -> None:
        """Jobs of orphaned claims were given back."""
        self._context.emitter.emit_released(jobs)
        self.announce_released({each.type for each in jobs})

    def announce_released(self, types: Iterable[str]) -> None:
        """Send that jobs of these types were given back: they lie before every worker's cursor."""
        self._hints.send(Hint("look", type) for type in sorted(types))
        for type in types:
            self._to_loop(self._claimer.hint, type, True)

    def on_reaped(self, report: ReapReport) -> None:
        """Jobs of dead workers were recovered."""
        jobs = report.page.reaped
        self._context.emitter.emit_reaped(jobs)
        self._hints.send(reaped_hints(jobs))
        for type in pending_types(jobs):
            self._to_loop(self._claimer.hint, type, True)
        self._to_loop(self._recorder.announce_ended, report.failed, report.fan_in)

    def on_delivered(self, delivery: Delivery) -> None:
        """Events that waited for a subscriber have become jobs."""
        self._hints.send(due_hints(delivery.types))
        for type in delivery.types:
            self._to_loop(self._claimer.hint, type)
        chains = [each.chain_id for each in delivery.end.ended]
        self._to_loop(self._recorder.announce_ended, chains, delivery.end.fan_in)

    def on_redriven(self, jobs: Sequence[Event]) -> None:
        """Dead letters were re-queued."""
        self._context.emitter.emit_all(jobs)
        types = {each.fields["type"] for each in jobs}
        self._hints.send(due_hints(types))
        for type in types:
            self._to_loop(self._claimer.hint, type)

    def on_woken(self, jobs: Sequence[JobRef]) -> None:
        """Durable functions became due because of a signal."""
        types = {each.type for each in jobs}
        self._hints.send(due_hints(types))
        for type in types:
            self._to_loop(self._claimer.hint, type)

    def on_presence(
        self, settings: Mapping[str, TypeSetting], identity: Identity | None, answer: SignAnswer
    ) -> None:
        """Settings were read that may have changed at run time, and the answer to the worker's sign of life."""
        self._to_loop(self._configure, settings, identity)
        self._to_loop(self._claimer.note_partitions, answer.has_partitions)
        if answer.has_redrives:
            self._context.wakes.redrives.set_soon()
        if answer.has_signals:
            self._context.wakes.signals.set_soon()
        if answer.is_draining:
            self._to_loop(self._context.stop.begin, "drained")

    def _configure(self, settings: Mapping[str, TypeSetting], identity: Identity | None) -> None:
        is_paused = identity is not None and identity.paused
        self._admission.await_standby(identity is not None and identity.awaits_standby)
        self._recorder.resume()
        for type in self._context.policies.configure(settings, is_paused):
            self._claimer.hint(type, full_scan=True)
        self._backlog.reconsider()
