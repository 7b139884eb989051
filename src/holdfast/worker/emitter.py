"""What goes wrong between a worker and its database: told once when it begins and once when it is over.

Tells the catalogue's events of a worker's life, after commit, and keeps its counters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.core.errors import DatabaseUnreachable
from holdfast.core.events import Event, Observer, event, wants_of
from holdfast.core.records import Finish, FinishKind, JobRef, Reaped
from holdfast.worker.attempt import AbortReason, Attempt
from holdfast.worker.clock import Clock
from holdfast.worker.counters import Counters, Tally


class Trouble:
    """The troubles of one worker's loops, by the purpose of their links. Used from both threads.

    `when_back` is called, from either thread, when one of them is over.
    """

    def __init__(self, telling: Telling, clock: Clock) -> None:
        self.when_back: Callable[[], None] = lambda: None
        self._telling = telling
        self._clock = clock
        self._since: dict[str, float] = {}
        self.unreachable_at = float("-inf")

    def note(self, purpose: str, error: Exception) -> None:
        """Tell that a loop cannot do its work, unless that is known; it goes on trying."""
        if isinstance(error, DatabaseUnreachable):
            self.unreachable_at = self._clock.monotonic()
        if purpose not in self._since:
            self._since[purpose] = self._clock.monotonic()
            self._telling.last_error = str(error)
            self._telling.tell("database_unreachable", purpose=purpose, error=str(error))

    def over(self, purpose: str) -> None:
        """Tell that a loop does its work again, if it did not."""
        if self._since.pop(purpose, None) is not None:
            self._telling.tell("database_back", purpose=purpose)
            self.when_back()


log = logging.getLogger("holdfast.worker")


EVENT_OF: Mapping[FinishKind, str] = {
    "complete": "job_completed",
    "continue": "job_continued",
    "retry": "job_retried",
    "fail": "job_failed",
    "snooze": "job_snoozed",
    "cancel": "job_cancelled",
    "release": "job_released",
}


class Telling:
    """One worker's voice. An event that no observer wants is not made: it costs its counter and the question.

    What the heartbeat's thread learns is told from there, so that a blocked loop hides nothing.
    """

    def __init__(
        self, worker: str, observer: Observer | None, clock: Clock, counters: Counters
    ) -> None:
        self._worker = worker
        self._observer = observer
        self._asked = wants_of(observer)
        self._wanted: dict[str, bool] = {}
        self._clock = clock
        self._counters = counters
        self.tally = Tally(clock.monotonic())
        self.last_error: str | None = None

    def _wants(self, name: str) -> bool:
        """Ask once a while: the question would cost more than most jobs' other bookkeeping."""
        wanted = self._wanted.get(name)
        if wanted is None:
            wanted = self._wanted[name] = self._asked(name)
        return wanted

    def ask_again(self) -> None:
        """Have observers asked anew what they want: a log level may have changed."""
        self._wanted = {}

    def tell(self, name: str, **fields: Any) -> None:
        """Emit an event of this worker."""
        if self._wants(name):
            self._observe(event(name, worker=self._worker, **fields))

    def _observe(self, event: Event) -> None:
        if self._observer is None:
            return
        try:
            self._observer.observe(event)
        except Exception:
            # Whoever watches the work must not be able to stop it.
            log.exception("an observer failed at %s", event.name)

    def started(self, attempt: Attempt) -> None:
        """A handler was called."""
        if self._wants("job_started"):
            self.tell("job_started", **_of(attempt), wait_ms=int(_waited(attempt) * 1000))

    def accepted(self, attempt: Attempt, finish: Finish) -> None:
        """An attempt's end was recorded."""
        kind = finish.kind
        self._count(kind, finish.error)
        began = attempt.started_at
        if began is not None and kind != "release" and self.tally.add(kind, attempt.claimed.type):
            ended_at = attempt.ended_at or self._clock.monotonic()
            self.tally.measure(_waited(attempt), ended_at - began)
        name = EVENT_OF[kind]
        if self._wants(name):
            self.tell(name, **self._fields(attempt, finish))

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

    def _fields(self, attempt: Attempt, finish: Finish) -> dict[str, Any]:
        began, ended = attempt.started_at, attempt.ended_at or self._clock.monotonic()
        ran = 0 if began is None else int((ended - began) * 1000)
        match finish.kind:
            case "complete":
                return _of(attempt) | {"run_ms": ran}
            case "continue":
                next_type = finish.next.type if finish.next is not None else None
                return _of(attempt) | {"run_ms": ran, "next_type": next_type}
            case "retry":
                said = {"run_ms": ran, "error": finish.error, "delay_ms": finish.delay_ms}
                return _of(attempt) | said
            case "fail":
                said = {"run_ms": ran, "error": finish.error, "fingerprint": finish.fingerprint}
                return _of(attempt) | said
            case "snooze":
                return _of(attempt) | {"delay_ms": finish.delay_ms}
            case "cancel":
                return _named(attempt) | {"reason": finish.error}
            case "release":
                return _named(attempt)

    def summary(self, running: int) -> None:
        """What ended since the last summary, if anything did."""
        fields = self.tally.take(self._clock.monotonic())
        if fields is not None:
            self.tell("worker_summary", **fields, running=running)

    def refused(self, attempt: Attempt, reason: str) -> None:
        """A write without a valid token was refused."""
        self._counters.refused += 1
        self.tell("write_refused", **_of(attempt), reason=reason)

    def lost(self, attempt: Attempt, reason: AbortReason) -> None:
        """A lease is gone."""
        self._counters.leases_lost += 1
        self.tell("lease_lost", **_of(attempt), reason=reason)

    def reaped(self, jobs: list[Reaped]) -> None:
        """Jobs of dead workers were taken back."""
        self._counters.recovered += len(jobs)
        if not self._wants("job_reaped"):
            return
        for each in jobs:
            self._observe(
                event(
                    "job_reaped",
                    job_id=each.id,
                    type=each.type,
                    worker=each.worker,
                    state=each.state,
                    crashes=each.crashes,
                    stale_ms=each.stale_ms,
                )
            )

    def given_back(self, jobs: Sequence[JobRef]) -> None:
        """Jobs of a claim whose answer was lost were released."""
        self._counters.released += len(jobs)
        for each in jobs:
            self.tell("job_released", job_id=each.id, type=each.type)

    def unblocked(self, jobs: Sequence[JobRef]) -> None:
        """The last blocker of these jobs ended."""
        if self._wants("job_unblocked"):
            for each in jobs:
                self._observe(event("job_unblocked", job_id=each.id, type=each.type))

    def stuck(self, attempt: Attempt, stuck_s: float) -> None:
        """A handler ignores its abort signal."""
        self.tell(
            "slot_stuck",
            **_of(attempt),
            reason=attempt.abort_reason,
            stuck_ms=int(stuck_s * 1000),
        )

    def reaper_ran(self, recovered: int, seconds: float) -> None:
        """The reaper has looked."""
        self._counters.reaper_runs += 1
        self.tell("reaper_ran", recovered=recovered, duration_ms=int(seconds * 1000))


def _waited(attempt: Attempt) -> float:
    """How long a job was due before its handler was called, in seconds."""
    claimed = attempt.claimed
    due_at = max(claimed.available_at, claimed.created_at)
    called_at = attempt.started_instant or claimed.claimed_at
    return max(0, called_at - due_at) / 1_000_000


def _named(attempt: Attempt) -> dict[str, Any]:
    claimed = attempt.claimed
    return {"job_id": claimed.id, "type": claimed.type, "chain_id": claimed.chain_id}


def _of(attempt: Attempt) -> dict[str, Any]:
    claimed = attempt.claimed
    return {**_named(attempt), "attempt": claimed.attempt, "fence": claimed.fence}
