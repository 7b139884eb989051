"""Deleting chains: refused while others wait for them, downwards through their blockers when asked."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.commands.chain_tail import tails_of
from holdfast.core.errors import StillReferenced
from holdfast.core.records import TERMINAL, Instant
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


class DeleteReport(msgspec.Struct):
    """The jobs and chains that are gone; `lost` are the jobs among them that a worker held, by the worker's id."""

    removed: list[str]
    chains: list[str]
    lost: dict[str, list[str]]


def delete_chains(
    store: Store, chain_ids: Sequence[str], cascade: bool = False, now: Instant | None = None
) -> Op[DeleteReport]:
    """Delete chains with all their jobs. A running handler is told `not_found`.

    Raises: ChainNotFound; StillReferenced with the jobs outside the set that still wait for one of them.
    """
    doomed = set(chain_ids)
    tails = yield from tails_of(store, doomed)
    if cascade:
        doomed = yield from _with_blockers(store, doomed)
        tails = yield from store.chains.tails(sorted(doomed))
    # Attaching a waiter touches the live tail or holds the ended one; both conflict with these locks.
    live = [tail.job_id for tail in tails if tail.state not in TERMINAL]
    yield from store.jobs.lock(live)
    yield from store.blockers.lock_ended([tail.job_id for tail in tails if tail.state in TERMINAL])
    references = yield from store.chains.references(sorted(doomed))
    if references:
        waiting = [f"job {each.job_id} of chain {each.waiting_chain_id}" for each in references]
        raise StillReferenced(f"{len(waiting)} jobs still wait for these chains", waiting)
    lost = yield from _held(store, live)
    removed = yield from store.chains.delete(sorted(doomed), now)
    return DeleteReport(removed, sorted(doomed), lost)


def _held(store: Store, job_ids: Sequence[str]) -> Op[dict[str, list[str]]]:
    lost: dict[str, list[str]] = {}
    for each in (yield from store.jobs.get(job_ids)) if job_ids else []:
        if each.worker is not None and each.state == "running":
            lost.setdefault(each.worker, []).append(each.id)
    return lost


def _with_blockers(store: Store, chain_ids: set[str]) -> Op[set[str]]:
    known, fresh = set(chain_ids), set(chain_ids)
    while fresh:
        below = yield from store.chains.blocking(sorted(fresh))
        fresh = below - known
        known |= fresh
    return known
