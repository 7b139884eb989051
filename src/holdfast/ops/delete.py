"""Deleting chains: refused while others wait for them, downwards through their blockers when asked."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import StillReferenced
from holdfast.core.model import TERMINAL, Instant
from holdfast.ops.tails import tails_of
from holdfast.storage.port import Store
from holdfast.storage.statement import Op


def delete_chains(
    store: Store, chain_ids: Sequence[str], cascade: bool = False, now: Instant | None = None
) -> Op[list[str]]:
    """Delete chains with all their jobs; return the job ids removed. A running handler is told `not_found`.

    Raises: ChainNotFound; StillReferenced with the jobs outside the set that still wait for one of them.
    """
    doomed = set(chain_ids)
    tails = yield from tails_of(store, doomed)
    if cascade:
        doomed = yield from _with_blockers(store, doomed)
        tails = yield from store.chains.tails(sorted(doomed))
    # Attaching a waiter touches the live tail or holds the ended one; both conflict with these locks.
    yield from store.jobs.lock([tail.job_id for tail in tails if tail.state not in TERMINAL])
    yield from store.blockers.lock_ended([tail.job_id for tail in tails if tail.state in TERMINAL])
    references = yield from store.chains.references(sorted(doomed))
    if references:
        waiting = [f"job {each.job_id} of chain {each.waiting_chain_id}" for each in references]
        raise StillReferenced(f"{len(waiting)} jobs still wait for these chains", waiting)
    return (yield from store.chains.delete(sorted(doomed), now))


def _with_blockers(store: Store, chain_ids: set[str]) -> Op[set[str]]:
    known, fresh = set(chain_ids), set(chain_ids)
    while fresh:
        below = yield from store.chains.blocking(sorted(fresh))
        fresh = below - known
        known |= fresh
    return known
