"""Tells the catalogue's events of a worker's life, after commit, and keeps its counters."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from holdfast.core.events import Event, Observer, event
from holdfast.core.model import Finish, JobRef, Reaped
from holdfast.worker.attempt import AbortReason, Attempt
from holdfast.worker.clock import Clock
from holdfast.worker.counters import Counters

log = logging.getLogger("holdfast.worker")


class Telling:
    """One worker's voice. With nobody listening an event costs nothing but its counter.

    What the heartbeat's thread learns is told from there, so that a blocked loop hides nothing.
    """

    def __init__(
        self, worker: str, observer: Observer | None, clock: Clock, counters: Counters
    ) -> None:
        self._worker = worker
        self._observer = observer
        self._clock = clock
        self._counters = counters
        self.last_error: str | None = None

    def tell(self, name: str, **fields: Any) -> None:
        """Emit an event of this worker."""
        if self._observer is not None:
            self._observe(event(name, worker=self._worker, **fields))

    def _observe(self, event: Event) -> None:
        assert self._observer is not None
        try:
            self._observer.observe(event)
        except Exception:
            # Whoever watches the work must not be able to stop it.
            log.exception("an observer failed at %s", event.name)

    def started(self, attempt: Attempt) -> None:
        """A handler was called."""
        if self._observer is not None:
            claimed = attempt.claimed
            waited = max(0, claimed.claimed_at - max(claimed.available_at, claimed.created_at))
            self.tell("job_started", **_of(attempt), wait_ms=waited // 1000)

    def accepted(self, attempt: Attempt, finish: Finish) -> None:
        """An attempt's end was recorded."""
        counters = self._counters
        match finish.kind:
            case "complete" | "continue":
                counters.processed += 1
            case "retry":
                counters.retried += 1
                self.last_error = finish.error
            case "fail":
                counters.dead_letters += 1
                self.last_error = finish.error
            case "snooze":
                counters.snoozed += 1
            case "cancel":
                counters.cancelled += 1
            case "release":
                counters.released += 1
        if self._observer is not None:
            self._tell_finish(attempt, finish)

    def _tell_finish(self, attempt: Attempt, finish: Finish) -> None:
        fields = _of(attempt)
        began = attempt.started_at
        ran = 0 if began is None else int((self._clock.monotonic() - began) * 1000)
        match finish.kind:
            case "complete":
                self.tell("job_completed", **fields, run_ms=ran)
            case "continue":
                next_type = finish.next.type if finish.next is not None else None
                self.tell("job_continued", **fields, run_ms=ran, next_type=next_type)
            case "retry":
                self.tell(
                    "job_retried",
                    **fields,
                    run_ms=ran,
                    error=finish.error,
                    delay_ms=finish.delay_ms,
                )
            case "fail":
                self.tell(
                    "job_failed",
                    **fields,
                    run_ms=ran,
                    error=finish.error,
                    fingerprint=finish.fingerprint,
                )
            case "snooze":
                self.tell("job_snoozed", **fields, delay_ms=finish.delay_ms)
            case "cancel":
                self.tell("job_cancelled", **_named(attempt), reason=finish.error)
            case "release":
                self.tell("job_released", **_named(attempt))

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
        if self._observer is None:
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
        if self._observer is not None:
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


def _named(attempt: Attempt) -> dict[str, Any]:
    claimed = attempt.claimed
    return {"job_id": claimed.id, "type": claimed.type, "chain_id": claimed.chain_id}


def _of(attempt: Attempt) -> dict[str, Any]:
    claimed = attempt.claimed
    return {**_named(attempt), "attempt": claimed.attempt, "fence": claimed.fence}
