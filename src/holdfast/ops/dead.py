"""Dropping dead letters: a failed chain goes with everything that belongs to it, unless others wait for it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import ChainNotFound, StillReferenced
from holdfast.ops.delete import delete_chains
from holdfast.storage.port import Store
from holdfast.storage.statement import Op


def drop_dead(store: Store, chain_ids: Sequence[str]) -> Op[list[str]]:
    """Delete chains that have failed, each for itself; return the ids of those that are gone.

    Those that were redriven meanwhile, and those that other jobs wait for, are left alone.
    """
    tails = yield from store.chains.tails(sorted(set(chain_ids)))
    failed = [tail.chain_id for tail in tails if tail.state == "failed"]
    try:
        yield from delete_chains(store, failed)
    except StillReferenced:
        # Nothing was deleted yet: the references are read before anything is written.
        return (yield from _one_by_one(store, failed))
    return failed


def _one_by_one(store: Store, chain_ids: Sequence[str]) -> Op[list[str]]:
    gone = []
    for chain_id in chain_ids:
        try:
            yield from delete_chains(store, [chain_id])
        except (StillReferenced, ChainNotFound):
            continue
        gone.append(chain_id)
    return gone
