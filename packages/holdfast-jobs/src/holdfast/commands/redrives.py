"""Redrives at a rate: dead letters are planned at once, and running workers re-queue the next few again and again.

What waits for its turn stays a dead letter. So nothing comes due while no worker runs, and nothing starts together once
one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.commands.change import Change, Effect, job_events
from holdfast.commands.jobs import redrive_jobs, refuse, requeue, spacing_us
from holdfast.core.duration import format_span
from holdfast.core.instants import Instant
from holdfast.core.lifecycle import REDRIVE
from holdfast.core.records import RedriveRecord
from holdfast.notify.base import Hint
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

AHEAD_US = 250_000
"""Jobs are re-queued so long before they are due, and as many may be late: more than that never start together."""

MAX_AT_ONCE = 1_000


class RedriveStep(NamedTuple):
    """What a step re-queued, the time it was, and when the job after those is due.

    It is held up by jobs that were re-queued before and have not started.
    """

    now: Instant
    next_at: Instant
    change: Change[list[str]]
    is_held_up: bool = False


def redrive_dead_letters(
    store: Store, ids: Sequence[str], rate: float | None = None, redrive_id: str | None = None
) -> Op[Change[list[str]]]:
    """Re-queue dead letters, or plan that at most `rate` of them a second are; return their ids.

    What has the same `redrive_id` shares its rate. Raises: InvalidOption; JobNotFound, WrongState when none has failed.
    """
    spacing = spacing_us(rate)
    if rate is None:
        return (yield from redrive_jobs(store, ids, REDRIVE))
    wanted = sorted(set(ids))
    planned = yield from store.redrives.add(redrive_id or new_id(), wanted, spacing)
    if wanted and not planned:
        yield from refuse(store, wanted, REDRIVE)
    pace = rate_text(spacing)
    return Change(
        [each.id for each in planned],
        [Effect(f"job {each.id}", {"state": "failed"}, {"redriven at": pace}) for each in planned],
        # Workers have to look: nothing is due yet.
        [Hint("look", type) for type in sorted({each.type for each in planned})],
    )


def continue_redrive(store: Store, id: str, types: Sequence[str]) -> Op[RedriveStep | None]:
    """Re-queue the next jobs of these types of a redrive.

    None when it has ended, or another worker continues it. Concurrency: of several workers one does it at a time.
    """
    pace = yield from store.redrives.lock(id)
    if pace is None:
        return None
    waiting = yield from store.redrives.count_waiting(id)
    begins = max(pace.next_at, pace.now)
    count = count_due(begins - pace.now, pace.spacing_us, waiting)
    if not count:
        is_held_up = begins - pace.now <= AHEAD_US
        return RedriveStep(pace.now, begins, Change([]), is_held_up)
    next_at = begins + count * pace.spacing_us
    taken = yield from store.redrives.take(id, types, count, next_at)
    moved = yield from requeue(store, taken, pace.spacing_us, begins)
    change = Change([each.id for each in moved], events=job_events("job_redriven", moved))
    return RedriveStep(pace.now, next_at, change)


def count_due(in_us: int, spacing_us: int, waiting: int) -> int:
    """How many jobs to re-queue now, when the next is due in so long and others wait for their start."""
    if in_us > AHEAD_US:
        return 0
    allowed = 2 * AHEAD_US // spacing_us + 1
    return max(0, min((AHEAD_US - in_us) // spacing_us + 1, allowed - waiting, MAX_AT_ONCE))


def rate_text(spacing_us: int) -> str:
    """Write a rate as it was given: 20/s, 2/m, 3/h."""
    for unit_us, unit in ((1_000_000, "s"), (60_000_000, "m"), (3_600_000_000, "h")):
        if spacing_us <= unit_us:
            return f"{unit_us / spacing_us:.3g}/{unit}"
    return f"1 every {format_span(spacing_us)}"


def redrive_sentence(redrive: RedriveRecord) -> str:
    """Say what is left of a redrive."""
    return f"redriven at {rate_text(redrive.spacing_us)}: {redrive.left} left"
