"""What all parts of one worker share: identity, options, leases, counters, and how it emits events.

Events are emitted after commit. What the heartbeat's thread learns is emitted there, so that a blocked loop hides
nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from holdfast.core.errors import DatabaseUnreachable, NoConnection, RoleRefused
from holdfast.core.events import Event, Observer, event, wants_of
from holdfast.core.records import Finish, FinishKind, JobRef, Reaped
from holdfast.core.registry import JobType
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.store import Store
from holdfast.worker.attempt import AbortReason, Attempt
from holdfast.worker.clock import Clock
from holdfast.worker.counters import Counters, SummaryTally
from holdfast.worker.handler_connections import HandlerConnections
from holdfast.worker.held_leases import HeldLeases
from holdfast.worker.options import Timings, TypePolicies, WorkerOptions
from holdfast.worker.wakes import Stop, Wake, Wakes, WorkerThreads

log = logging.getLogger("holdfast.worker")

EVENT_OF: Mapping[FinishKind, str] = {
    "complete": "job_completed",
    "continue": "job_continued",
    "retry": "job_retried",
    "fail": "job_failed",
    "snooze": "job_snoozed",
    "cancel": "job_cancelled",
    "release": "job_released",
    "park": "job_parked",
}


class WorkerContext(msgspec.Struct, frozen=True):
    """The state that the parts of one worker share."""

    id: str
    options: WorkerOptions
    timings: Timings
    types: Mapping[str, JobType]
    policies: TypePolicies
    database: Database
    clock: Clock
    held_leases: HeldLeases
    counters: Counters
    emitter: Emitter
    health: DatabaseHealth
    connections: HandlerConnections
    threads: WorkerThreads
    wakes: Wakes
    stop: Stop

    @classmethod
    def create(
        cls,
        database: Database,
        types: Mapping[str, JobType],
        options: WorkerOptions,
        observer: Observer | None,
        clock: Clock,
    ) -> WorkerContext:
        """Make the context of a worker for these types, with an id unique to this start.

        Raises: HF017, HF018, HF019 for timings that do not fit.
        """
        handled = {name: each for name, each in types.items() if each.handler is not None}
        id, counters = f"{options.name}-{new_id()[-12:]}", Counters()
        threads = WorkerThreads()
        wakes = Wakes(threads)
        emitter, held_leases = Emitter(id, observer, clock, counters), HeldLeases(wakes)
        connections = HandlerConnections(database, handled, held_leases, clock, emitter)
        return cls(
            id=id,
            options=options,
            timings=options.fit_timings([each.lease or options.lease for each in handled.values()]),
            types=handled,
            policies=TypePolicies(handled, options),
            database=database,
            clock=clock,
            held_leases=held_leases,
            counters=counters,
            emitter=emitter,
            health=DatabaseHealth(emitter, clock, connections, wakes.heartbeat),
            connections=connections,
            threads=threads,
            wakes=wakes,
            stop=Stop(),
        )

    @property
    def store(self) -> Store:
        """The database's store."""
        return self.database.store

    def may_begin(self, attempt: Attempt, now: float) -> bool:
        """Whether a handler may begin by now; aborts an attempt whose lease is over. From any thread.

        After a pause of the process a slot may wake before the loop that enforces deadlines.
        """
        lease = attempt.lease
        if lease is None or now < lease.deadline:
            return attempt.abort_reason is None
        if attempt.abort("error", now):
            self.emitter.emit_lost(attempt, "error")
        return False


class DatabaseHealth:
    """Which of a worker's connections fail, by purpose: emits one event when that begins and one when it ends.

    Used from both threads. When a connection works again, the heartbeat checks what is still ours: a server that went
    away may have forgotten our last claims, and others may have them by now.
    """

    def __init__(
        self, emitter: Emitter, clock: Clock, connections: HandlerConnections, heartbeat: Wake
    ) -> None:
        self._emitter = emitter
        self._clock = clock
        self._connections = connections
        self._heartbeat = heartbeat
        self._failing: dict[str, str] = {}
        self.unreachable_at = float("-inf")

    def report_error(self, purpose: str, error: Exception) -> None:
        """Emit that a loop cannot reach the database or is refused, unless that is known; the loop keeps trying."""
        if isinstance(error, DatabaseUnreachable):
            self.unreachable_at = self._clock.monotonic()
        if isinstance(error, NoConnection):
            self._connections.tell(error)
            return
        kind = "database_refused" if isinstance(error, RoleRefused) else "database_unreachable"
        if self._failing.get(purpose) != kind:
            self._failing[purpose] = kind
            self._emitter.last_error = str(error)
            self._emitter.emit(kind, purpose=purpose, error=str(error))

    @contextmanager
    def report(self, purpose: str) -> Iterator[None]:
        """Report whether a block reached the database; its errors end here."""
        try:
            yield
        except Exception as error:
            self.report_error(purpose, error)
        else:
            self.report_ok(purpose)

    def report_ok(self, purpose: str) -> None:
        """Emit that a loop reaches the database again, if it could not."""
        if self._failing.pop(purpose, None):
            self._emitter.emit("database_back", purpose=purpose)
            self._heartbeat.set_soon()


class _Wants(dict[str, bool]):
    """Whether an observer wants an event: asked once, for asking costs more than most jobs' other bookkeeping."""

    def __init__(self, observer: Observer | None) -> None:
        super().__init__()
        self._ask = wants_of(observer)

    def __missing__(self, name: str) -> bool:
        self[name] = self._ask(name)
        return self[name]


class Emitter:
    """Emits the catalogue's events and keeps the counters; an event nobody wants is not built and costs its counter."""

    def __init__(
        self, worker: str, observer: Observer | None, clock: Clock, counters: Counters
    ) -> None:
        self._worker = worker
        self._observer = observer
        self._wants = _Wants(observer)
        self._clock = clock
        self._counters = counters
        self.tally = SummaryTally(clock.monotonic())
        self.last_error: str | None = None

    def refresh_wants(self) -> None:
        """Ask the observer again which events it wants: a log level may have changed."""
        self._wants.clear()

    def emit(self, name: str, **fields: Any) -> None:
        """Emit an event of this worker."""
        if self._wants[name]:
            self._observe(event(name, worker=self._worker, **fields))

    def emit_attempt(self, name: str, attempt: Attempt, **fields: Any) -> None:
        """Emit an event of an attempt."""
        if self._wants[name]:
            self.emit(name, **_attempt_fields(attempt), **fields)

    def emit_all(self, events: Iterable[Event]) -> None:
        """Emit events that a command told of."""
        for each in events:
            self._observe(each)

    def _observe(self, event: Event) -> None:
        if self._observer is None:
            return
        try:
            self._observer.observe(event)
        except Exception:
            # An observer must not be able to stop the work it watches.
            log.exception("an observer failed on %s", event.name)

    def emit_started(self, attempt: Attempt) -> None:
        """A handler was called."""
        if self._wants["job_started"]:
            self.emit(
                "job_started", **_attempt_fields(attempt), wait_ms=int(_wait_s(attempt) * 1000)
            )

    def emit_finished(self, attempt: Attempt, finish: Finish) -> None:
        """An attempt's end was recorded."""
        kind = finish.kind
        self._count(kind, finish.error)
        began = attempt.started_at
        is_end = kind not in ("release", "park")
        if began is not None and is_end and self.tally.add(kind, attempt.claimed.type):
            ended_at = attempt.ended_at or self._clock.monotonic()
            self.tally.measure(_wait_s(attempt), ended_at - began)
        name = EVENT_OF[kind]
        if self._wants[name]:
            self.emit(name, **self._fields(attempt, finish))
        if attempt.unused_steps and kind in ("complete", "continue"):
            self.emit_attempt("records_unused", attempt, steps=list(attempt.unused_steps))
        if kind == "fail" and finish.on_failed == "due":
            self.emit("on_failed_gave_up", **_attempt_fields(attempt), error=finish.error)

    def _count(self, kind: FinishKind, error: str | None) -> None:
        counters = self._counters
        match kind:
            case "complete" | "continue":
                counters.processed += 1
            case "retry":
                counters.retried += 1
                self.last_error = error
            case "fail":
                counters.dead_letters += 1
                self.last_error = error
            case "snooze":
                counters.snoozed += 1
            case "cancel":
                counters.cancelled += 1
            case "release":
                counters.released += 1
            case "park":
                pass

    def _fields(self, attempt: Attempt, finish: Finish) -> dict[str, Any]:
        began, ended = attempt.started_at, attempt.ended_at or self._clock.monotonic()
        ran = 0 if began is None else int((ended - began) * 1000)
        match finish.kind:
            case "complete" | "park":
                return _attempt_fields(attempt) | {"run_ms": ran}
            case "continue":
                next_type = finish.next.type if finish.next is not None else None
                return _attempt_fields(attempt) | {"run_ms": ran, "next_type": next_type}
            case "retry":
                result = {"run_ms": ran, "error": finish.error, "delay_ms": finish.delay_ms}
                return _attempt_fields(attempt) | result
            case "fail":
                result = {"run_ms": ran, "error": finish.error, "fingerprint": finish.fingerprint}
                return _attempt_fields(attempt) | result
            case "snooze":
                return _attempt_fields(attempt) | {"delay_ms": finish.delay_ms}
            case "cancel":
                return _job_fields(attempt) | {"reason": finish.error}
            case "release":
                return _job_fields(attempt)

    def emit_summary(self, running: int) -> None:
        """Sum up what ended since the last summary, if anything did."""
        fields = self.tally.take(self._clock.monotonic())
        if fields is not None:
            self.emit("worker_summary", **fields, running=running)

    def emit_refused(self, attempt: Attempt, reason: str) -> None:
        """A write without a valid token was refused."""
        self._counters.refused += 1
        self.emit("write_refused", **_attempt_fields(attempt), reason=reason)

    def emit_unreadable(self, attempt: Attempt, finish: Finish) -> None:
        """An input cannot be read by this code."""
        fields = {"error": finish.error, "delay_ms": finish.delay_ms}
        self.emit("job_unreadable", **_attempt_fields(attempt), **fields)

    def emit_lost(self, attempt: Attempt, reason: AbortReason) -> None:
        """A lease is gone."""
        self._counters.leases_lost += 1
        self.emit("lease_lost", **_attempt_fields(attempt), reason=reason)

    def emit_reaped(self, jobs: list[Reaped]) -> None:
        """Jobs of dead workers were taken back."""
        self._counters.recovered += len(jobs)
        if not self._wants["job_reaped"]:
            return
        for each in jobs:
            self._observe(event("job_reaped", **reaped_fields(each)))

    def emit_released(self, jobs: Sequence[JobRef]) -> None:
        """Jobs of a claim whose answer was lost were released."""
        self._counters.released += len(jobs)
        for each in jobs:
            self.emit("job_released", job_id=each.id, type=each.type)

    def emit_unblocked(self, jobs: Sequence[JobRef]) -> None:
        """The last blocker of these jobs ended."""
        if self._wants["job_unblocked"]:
            for each in jobs:
                self._observe(event("job_unblocked", job_id=each.id, type=each.type))

    def emit_stuck(self, attempt: Attempt, stuck_s: float) -> None:
        """A handler ignores its abort signal."""
        self.emit(
            "slot_stuck",
            **_attempt_fields(attempt),
            reason=attempt.abort_reason,
            stuck_ms=int(stuck_s * 1000),
        )

    def emit_reaper_ran(self, recovered: int, seconds: float) -> None:
        """The reaper has run."""
        self._counters.reaper_runs += 1
        self.emit("reaper_ran", recovered=recovered, duration_ms=int(seconds * 1000))


def _wait_s(attempt: Attempt) -> float:
    """How long a job was due before its handler was called, in seconds."""
    claimed = attempt.claimed
    due_at = max(claimed.available_at, claimed.created_at)
    called_at = attempt.started_instant or claimed.claimed_at
    return max(0, called_at - due_at) / 1_000_000


def _job_fields(attempt: Attempt) -> dict[str, Any]:
    claimed = attempt.claimed
    return {"job_id": claimed.id, "type": claimed.type, "chain_id": claimed.chain_id}


def reaped_fields(job: Reaped) -> dict[str, Any]:
    """Return the fields of the event about a job that was taken back."""
    names = ("type", "worker", "state", "crashes", "stale_ms")
    return {"job_id": job.id, **{name: getattr(job, name) for name in names}}


def _attempt_fields(attempt: Attempt) -> dict[str, Any]:
    claimed = attempt.claimed
    return {**_job_fields(attempt), "attempt": claimed.attempt, "fence": claimed.fence}
