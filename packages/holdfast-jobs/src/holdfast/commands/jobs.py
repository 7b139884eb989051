"""Commands on jobs: cancel, run now, retry.

Of several jobs those that can be moved are, and the others are left alone; when none can be, the command is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.commands.blockers import FanIn, close_chains, fail_later
from holdfast.commands.change import (
    Change,
    Effect,
    due_hints,
    ended_hints,
    group_by_worker,
    job_events,
    lost_hints,
)
from holdfast.core.errors import InvalidOption, JobNotFound
from holdfast.core.events import Event, event
from holdfast.core.instants import Instant
from holdfast.core.lifecycle import CANCEL, EXPIRED, RETRY, RUN_NOW, Command
from holdfast.core.records import EndedJob, Ending, JobRef, State, TerminalState
from holdfast.core.redaction import clean_error, clean_text, fingerprint
from holdfast.notify.base import Hint
from holdfast.storage.after_commit import Fate, Witness
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

SLOWEST_RATE = 0.001
FASTEST_RATE = 1_000_000

_FATES: dict[TerminalState, Fate] = {"completed": "completed", "cancelled": "cancelled"}


class EndReport(msgspec.Struct):
    """Jobs that were ended from outside a worker, and what that led to."""

    ended: list[EndedJob]
    fan_in: FanIn

    def hints(self, is_continued: bool = False) -> list[Hint]:
        """Workers lost what they held, chains ended unless they continue, and jobs that waited for them may be due."""
        ended = () if is_continued else self.ended
        return [
            *lost_hints(group_by_worker((each.worker, each.id) for each in self.ended)),
            *ended_hints(each.chain_id for each in (*ended, *self.fan_in.failed)),
            *due_hints(each.type for each in self.fan_in.opened),
        ]

    def events(
        self, state: State, reason: str | None = None, next_type: str | None = None
    ) -> list[Event]:
        """Jobs were ended, and others failed or opened because of it."""
        return [
            *(_ended_event(each, state, reason, next_type) for each in self.ended),
            *(
                event("job_failed", job_id=each.id, type=each.type, chain_id=each.chain_id)
                for each in self.fan_in.failed
            ),
            *job_events("job_unblocked", self.fan_in.opened),
        ]

    def witness(self, state: TerminalState) -> Witness | None:
        """A job whose state shows whether the end was undone."""
        return next((Witness(each.id, _FATES[state]) for each in self.ended), None)


def _ended_event(job: EndedJob, state: State, reason: str | None, next_type: str | None) -> Event:
    fields = {"job_id": job.id, "type": job.type, "chain_id": job.chain_id}
    if state == "failed":
        return event("job_failed", **fields, error=clean_text(str(reason or "")))
    if state == "cancelled":
        text = clean_text(str(reason or ""))
        return event("job_cancelled", **fields, worker=job.worker, reason=text)
    if next_type is not None:
        return event("job_continued", **fields, next_type=next_type)
    return event("job_completed", **fields)


def end_jobs(store: Store, endings: Sequence[Ending], now: Instant | None = None) -> Op[EndReport]:
    """End live jobs, whichever worker holds them; jobs that are not live are left out of the report."""
    live = yield from store.jobs.lock([each.id for each in endings])
    mine = [each for each in endings if each.id in live]
    if not mine:
        return EndReport([], FanIn([], []))
    ended = yield from store.jobs.end(mine, now)
    failed = [each.id for each in mine if each.state == "failed"]
    failing = yield from fail_later(store, failed, now)
    ended = [each for each in ended if each.id not in failing]
    states: dict[str, State] = {each.id: each.state for each in mine if each.next is None}
    over = [
        (each.chain_id, states[each.id]) for each in ended if each.awaited and each.id in states
    ]
    fan_in = yield from close_chains(store, over, now)
    return EndReport(ended, fan_in)


def fail_unhandled(
    store: Store, type: str, after_ms: int, limit: int, now: Instant | None = None
) -> Op[EndReport]:
    """Fail jobs of a type that no worker handles, once they have been due for so long; at most `limit`."""
    ids = yield from store.events.unhandled(type, after_ms, limit, now)
    message = f"no live worker handles {type}"
    error, print_ = clean_error("UnhandledType", message), fingerprint("UnhandledType", message)
    endings = [Ending(id=each, state="failed", error=error, fingerprint=print_) for each in ids]
    return (yield from end_jobs(store, endings, now))


def expire_jobs(store: Store, limit: int, now: Instant | None = None) -> Op[EndReport]:
    """Cancel waiting jobs whose time to begin is over; at most `limit`."""
    ids = yield from store.expiry.find_due(limit, now)
    endings = [Ending(id=each, state="cancelled", error=EXPIRED) for each in ids]
    return (yield from end_jobs(store, endings, now))


def cancel_jobs(store: Store, ids: Sequence[str], reason: str = "") -> Op[Change[list[str]]]:
    """Cancel those of the jobs that are live; running handlers get their abort signal. Return their ids.

    Raises: JobNotFound, WrongState when none is.
    """
    error = clean_error("Cancelled", reason)
    # One that is named twice ends once.
    wanted = sorted(set(ids))
    endings = [Ending(id=each, state="cancelled", error=error) for each in wanted]
    report = yield from end_jobs(store, endings)
    if wanted and not report.ended:
        yield from refuse(store, wanted, CANCEL)
    return Change(
        [each.id for each in report.ended],
        [
            Effect(f"job {each.id}", {"state": each.was}, {"state": "cancelled"})
            for each in report.ended
        ],
        report.hints(),
        report.events("cancelled", reason),
        report.witness("cancelled"),
    )


def run_jobs_now(store: Store, ids: Sequence[str]) -> Op[Change[list[str]]]:
    """Make those of the jobs due now that are pending; return their ids.

    Raises: JobNotFound, WrongState when none is.
    """
    wanted = sorted(set(ids))
    moved = yield from store.jobs.trigger(wanted)
    if moved:
        yield from store.debounce.hurry([each.id for each in moved])
    if wanted and not moved:
        yield from refuse(store, wanted, RUN_NOW)
    return Change(
        [each.id for each in moved],
        [Effect(f"job {each.id}", {"state": "pending"}, {"due": "now"}) for each in moved],
        due_hints(each.type for each in moved),
    )


def redrive_jobs(
    store: Store, ids: Sequence[str], command: Command = RETRY
) -> Op[Change[list[str]]]:
    """Put those of the jobs that failed back into the queue; return their ids.

    Attempts begin anew, the history of earlier ones stays. Raises: JobNotFound, WrongState when none has failed.
    """
    wanted = sorted(set(ids))
    # Should one fail again, a redrive that is under way must not take it for the dead letter it was.
    yield from store.redrives.forget(wanted)
    moved = yield from requeue(store, wanted)
    if wanted and not moved:
        yield from refuse(store, wanted, command)
    return Change(
        [each.id for each in moved],
        [Effect(f"job {each.id}", {"state": "failed"}, {"state": "pending"}) for each in moved],
        due_hints(each.type for each in moved),
        job_events("job_redriven", moved),
        next((Witness(each.id, "redriven") for each in moved), None),
    )


def requeue(
    store: Store, ids: Sequence[str], spacing_us: int = 0, now: Instant | None = None
) -> Op[list[JobRef]]:
    """Take failed jobs back into the queue, `spacing_us` apart.

    A transaction that is attaching a waiter to one of them is awaited first: a statement held up half way would not see
    that waiter.
    """
    yield from store.blockers.lock_ended(ids)
    return (yield from store.jobs.redrive(ids, spacing_us, now))


def spacing_us(rate: float | None) -> int:
    """Return the interval between due times at `rate` jobs a second; without a rate all are due at once.

    Raises: InvalidOption.
    """
    if rate is None:
        return 0
    if not SLOWEST_RATE <= rate <= FASTEST_RATE:
        raise InvalidOption(
            f"a rate of {rate} per second is out of range",
            help=f"use {SLOWEST_RATE} to {FASTEST_RATE}",
        )
    return int(1_000_000 / rate)


def refuse(store: Store, ids: Sequence[str], command: Command) -> Op[None]:
    """Explain why none of these jobs was moved. Raises: JobNotFound, WrongState."""
    records = yield from store.jobs.get(ids[:5])
    if not records:
        raise JobNotFound(f"there is no job {ids[0]}")
    raise command.refusal([(each.id, each.state) for each in records])
