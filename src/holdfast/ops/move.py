"""Moves from outside that bring jobs back into play: trigger now, redrive what failed."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import InvalidOption, JobNotFound, WrongState
from holdfast.core.model import Instant, JobRef
from holdfast.ops.tails import tail_of
from holdfast.storage.port import Store
from holdfast.storage.statement import Op

SLOWEST_RATE = 0.001
FASTEST_RATE = 1_000_000


def trigger_jobs(store: Store, ids: Sequence[str], now: Instant | None = None) -> Op[list[JobRef]]:
    """Make pending jobs due now, all or nothing. Raises: JobNotFound, WrongState; the caller's transaction undoes."""
    moved = yield from store.jobs.trigger(ids, now)
    missed = sorted(set(ids) - {each.id for each in moved})
    if missed:
        yield from _explain(store, missed, "only a pending job can be triggered")
    return moved


def trigger_chain(store: Store, chain_id: str, now: Instant | None = None) -> Op[list[JobRef]]:
    """Make the pending job of a chain due now. Raises: ChainNotFound, WrongState."""
    tail = yield from tail_of(store, chain_id)
    return (yield from trigger_jobs(store, [tail.job_id], now))


def redrive_jobs(
    store: Store, ids: Sequence[str], spacing_us: int = 0, now: Instant | None = None
) -> Op[list[JobRef]]:
    """Take failed jobs back into the queue; those that are not failed are left out.

    Whoever is attaching a waiter to one of them is waited for first: a statement held up in its midst would not see it.
    """
    wanted = sorted(ids)
    yield from store.blockers.lock_ended(wanted)
    return (yield from store.jobs.redrive(wanted, spacing_us, now))


def spacing_us(rate: float | None) -> int:
    """Return how far apart jobs become due at so many a second; without a rate all at once. Raises: InvalidOption."""
    if rate is None:
        return 0
    if not SLOWEST_RATE <= rate <= FASTEST_RATE:
        raise InvalidOption(
            f"a rate of {rate} a second is out of range",
            help=f"give one from {SLOWEST_RATE} to {FASTEST_RATE}",
        )
    return int(1_000_000 / rate)


def retry_chain(store: Store, chain_id: str, now: Instant | None = None) -> Op[list[JobRef]]:
    """Take a failed chain up again from its failed job. Raises: ChainNotFound, WrongState."""
    tail = yield from tail_of(store, chain_id)
    moved = yield from redrive_jobs(store, [tail.job_id], 0, now)
    if not moved:
        yield from _explain(store, [tail.job_id], "only a failed chain can be retried")
    return moved


def _explain(store: Store, missed: Sequence[str], rule: str) -> Op[None]:
    records = yield from store.jobs.get(missed)
    absent = sorted(set(missed) - {each.id for each in records})
    if absent:
        raise JobNotFound(f"there is no job {absent[0]}")
    details = [f"job {each.id} is {each.state}" for each in records[:5]]
    raise WrongState(rule, details=details)
