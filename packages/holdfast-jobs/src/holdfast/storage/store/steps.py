"""Durable functions: the records of steps, and signals, over named statements."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

from holdfast.core.instants import Instant
from holdfast.core.records import JobRef
from holdfast.core.steps import (
    ClosedStep,
    NewSignal,
    NewStep,
    SignalRecord,
    StepRecord,
    WaitRecord,
    WrittenStep,
)
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store.params import document, fetch, fetch_column, fetch_set, has_rows, texts

LOOK = 10_000
"""How many blocked jobs, or signals, are looked at in search of what is wrong with them."""


class StepStore:
    """What the steps of jobs left behind."""

    def record(self, steps: Sequence[NewStep], now: Instant | None = None) -> Op[list[WrittenStep]]:
        """Append records, each proven by its (job, token) pair; return those that were accepted. One statement.

        Concurrency: the live rows are locked in share mode until the commit, so that no other worker can take a job
        over in between. Locked rows are skipped; what is not returned was lost, is locked, or was there already.
        """
        return fetch(WrittenStep, "step_record", rows=document(steps), now=now)

    def append(self, step: NewStep, now: Instant | None = None) -> Op[list[WrittenStep]]:
        """Append one that is done and not the first of its attempt, at less than what several together cost.

        Concurrency: see `record`; but one that was there already may be an IntegrityError of the driver's.
        """
        is_written = yield Statement("step_append", {**asdict(step), "now": now})
        return [WrittenStep(step.job_id, step.name, step.key, step.nth, None)] if is_written else []

    def close(
        self, steps: Sequence[ClosedStep], now: Instant | None = None
    ) -> Op[list[WrittenStep]]:
        """End open records, proven and locked as new ones are; return those that were open. One statement.

        One that takes a signal is ended only if the signal is still there to take. A wait times out only once its
        time is over.
        """
        return fetch(WrittenStep, "step_close", rows=document(steps), now=now)

    def of_jobs(self, ids: Sequence[str], now: Instant | None = None) -> Op[list[StepRecord]]:
        """Read the records of jobs in order, and for open waits the oldest signal that they can take. One statement."""
        return fetch(StepRecord, "step_list", ids=texts(ids), now=now)

    def wake_parents(self, ids: Sequence[str], now: Instant | None = None) -> Op[list[JobRef]]:
        """Make functions due that can go on because chains they waited for have ended; return them. One statement.

        One that runs is due again when it parks.
        """
        return fetch(JobRef, "step_wake_parents", ids=texts(ids), now=now)

    def latest(self, job_id: str, limit: int) -> Op[list[StepRecord]]:
        """Read the last records of a job, in their order. One statement."""
        return fetch(StepRecord, "step_latest", job_id=job_id, limit=limit)

    def waits_of(self, job_id: str, limit: int) -> Op[list[StepRecord]]:
        """Read what a parked function waits for; nothing of a job that is not parked. One statement."""
        return fetch(StepRecord, "step_parked", job_id=job_id, limit=limit)

    def waiting(self) -> Op[dict[str, int]]:
        """Count the waits of parked functions by kind, among the oldest that are open. One statement."""
        return dict((yield Statement("step_waiting", {"look": LOOK})))

    def copy(self, job_id: str, steps: Sequence[StepRecord]) -> Op[None]:
        """Give a new job records of another, before any worker sees it. Two statements."""
        yield Statement("step_copy", {"job_id": job_id, "rows": document(steps)})
        yield Statement("step_copied", {"job_id": job_id})

    def find_stranded(self, limit: int) -> Op[list[JobRef]]:
        """Read parked functions that nothing will wake, among the newest blocked jobs. Two small statements."""
        blocked = yield from fetch_column("job_walk_blocked", before=None, limit=LOOK)
        return (yield from fetch(JobRef, "step_stranded", ids=texts(blocked)))[:limit]


class SignalStore:
    """Signals: appended by anybody's transaction, routed to the functions that wait, taken under their token."""

    def append(
        self, signals: Sequence[NewSignal], channel: str | None = None, now: Instant | None = None
    ) -> Op[set[str]]:
        """Append signals; return the ids of those that were new. One statement.

        Concurrency: reads and locks nothing of others, but for another signal of the same `given_id`.
        """
        return fetch_set("signal_append", rows=document(signals), channel=channel, now=now)

    def route(self, limit: int, now: Instant | None = None) -> Op[list[JobRef]]:
        """Make the functions due that wait for signals not routed yet; return them. One statement.

        Concurrency: what others have locked is skipped; the signals of functions whose live row is locked stay for the
        next time.
        """
        return fetch(JobRef, "signal_route", limit=limit, now=now)

    def has_fresh(self) -> Op[bool]:
        """Whether there are signals that were not routed yet. One statement."""
        return has_rows("signal_fresh")

    def waits(self, limit: int) -> Op[list[WaitRecord]]:
        """Read the open waits of live jobs, those of the oldest jobs first. One statement."""
        return fetch(WaitRecord, "signal_waits", limit=limit)

    def find_unwanted(
        self, after_ms: int, limit: int, now: Instant | None = None
    ) -> Op[list[SignalRecord]]:
        """Read old signals that nobody has taken for so long, and that nobody waits for. One statement."""
        return fetch(
            SignalRecord, "signal_unwanted", after_ms=after_ms, look=LOOK, limit=limit, now=now
        )

    def list(self, limit: int) -> Op[list[SignalRecord]]:
        """Read the newest signals. One statement."""
        return fetch(SignalRecord, "signal_list", limit=limit)
