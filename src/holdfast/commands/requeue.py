"""Moves from outside that bring jobs back into play: trigger now, redrive what failed.

Of several jobs those that can be moved are, and the others are left alone; when none can be, that is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.commands.chain_tail import tail_of
from holdfast.core.errors import InvalidOption, JobNotFound
from holdfast.core.lifecycle import RETRY, RUN_NOW, Command
from holdfast.core.records import Instant, JobRef
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

SLOWEST_RATE = 0.001
FASTEST_RATE = 1_000_000


def trigger_jobs(store: Store, ids: Sequence[str], now: Instant | None = None) -> Op[list[JobRef]]:
    """Make those of the jobs due now that are pending. Raises: JobNotFound, WrongState when none is."""
    moved = yield from store.jobs.trigger(ids, now)
    if ids and not moved:
        yield from refuse(store, ids, RUN_NOW)
    return moved


def trigger_chain(store: Store, chain_id: str, now: Instant | None = None) -> Op[list[JobRef]]:
    """Make the pending job of a chain due now. Raises: ChainNotFound, WrongState."""
    tail = yield from tail_of(store, chain_id)
    return (yield from trigger_jobs(store, [tail.job_id], now))


def redrive_jobs(
    store: Store, ids: Sequence[str], spacing_us: int = 0, now: Instant | None = None
) -> Op[list[JobRef]]:
    """Take those of the jobs that failed back into the queue. Raises: JobNotFound, WrongState when none has.

    Whoever is attaching a waiter to one of them is waited for first: a statement held up in its midst would not see it.
    """
    wanted = sorted(ids)
    yield from store.blockers.lock_ended(wanted)
    moved = yield from store.jobs.redrive(wanted, spacing_us, now)
    if wanted and not moved:
        yield from refuse(store, wanted, RETRY)
    return moved


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
    return (yield from redrive_jobs(store, [tail.job_id], 0, now))


def refuse(store: Store, ids: Sequence[str], command: Command) -> Op[None]:
    """Say why none of these jobs was moved. Raises: JobNotFound, WrongState."""
    records = yield from store.jobs.get(ids[:5])
    if not records:
        raise JobNotFound(f"there is no job {ids[0]}")
    raise command.refusal([(each.id, each.state) for each in records])
