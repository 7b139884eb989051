"""Moves from outside that bring jobs back into play: trigger now, redrive what failed."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import ChainNotFound, JobNotFound, WrongState
from holdfast.core.model import Instant, JobRef
from holdfast.storage.port import Store
from holdfast.storage.statement import Op


def trigger_jobs(store: Store, ids: Sequence[str], now: Instant | None = None) -> Op[list[JobRef]]:
    """Make pending jobs due now, all or nothing. Raises: JobNotFound, WrongState; the caller's transaction undoes."""
    moved = yield from store.jobs.trigger(ids, now)
    missed = sorted(set(ids) - {each.id for each in moved})
    if missed:
        yield from _explain(store, missed, "only a pending job can be triggered")
    return moved


def trigger_chain(store: Store, chain_id: str, now: Instant | None = None) -> Op[list[JobRef]]:
    """Make the pending job of a chain due now. Raises: ChainNotFound, WrongState."""
    tail = yield from _tail(store, chain_id)
    return (yield from trigger_jobs(store, [tail], now))


def redrive_jobs(
    store: Store, ids: Sequence[str], spacing_us: int = 0, now: Instant | None = None
) -> Op[list[JobRef]]:
    """Take failed jobs back into the queue; those that are not failed are left out.

    Whoever is attaching a waiter to one of them is waited for first: a statement held up in its midst would not see it.
    """
    wanted = sorted(ids)
    yield from store.blockers.lock_ended(wanted)
    return (yield from store.jobs.redrive(wanted, spacing_us, now))


def retry_chain(store: Store, chain_id: str, now: Instant | None = None) -> Op[list[JobRef]]:
    """Take a failed chain up again from its failed job. Raises: ChainNotFound, WrongState."""
    tail = yield from _tail(store, chain_id)
    moved = yield from redrive_jobs(store, [tail], 0, now)
    if not moved:
        yield from _explain(store, [tail], "only a failed chain can be retried")
    return moved


def _tail(store: Store, chain_id: str) -> Op[str]:
    tails = yield from store.chains.tails([chain_id])
    if not tails:
        raise ChainNotFound(f"there is no chain {chain_id}")
    return tails[0].job_id


def _explain(store: Store, missed: Sequence[str], rule: str) -> Op[None]:
    records = yield from store.jobs.get(missed)
    absent = sorted(set(missed) - {each.id for each in records})
    if absent:
        raise JobNotFound(f"there is no job {absent[0]}")
    details = [f"job {each.id} is {each.state}" for each in records[:5]]
    raise WrongState(rule, details=details)
