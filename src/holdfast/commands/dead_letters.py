"""Dropping dead letters: a failed chain goes with everything that belongs to it, unless others wait for it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.commands.delete import delete_chains
from holdfast.commands.requeue import refuse
from holdfast.core.errors import ChainNotFound, StillReferenced
from holdfast.core.lifecycle import DROP
from holdfast.core.records import JobRecord
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


def drop_dead(store: Store, ids: Sequence[str]) -> Op[list[JobRecord]]:
    """Delete the chains of failed jobs, each for itself; return the jobs that were dropped with theirs.

    Those that did not fail, and those that other jobs wait for, are left alone.
    Raises: JobNotFound, WrongState, StillReferenced when none could be dropped.
    """
    records = yield from store.jobs.get(ids)
    failed = [each for each in records if each.state in DROP.states]
    if not failed:
        yield from refuse(store, ids, DROP)
    gone = yield from _drop(store, sorted({each.chain_id for each in failed}))
    return [each for each in failed if each.chain_id in gone]


def _drop(store: Store, chain_ids: Sequence[str]) -> Op[set[str]]:
    try:
        yield from delete_chains(store, chain_ids)
    except (StillReferenced, ChainNotFound):
        # Nothing was deleted yet: the references are read before anything is written.
        if len(chain_ids) == 1:
            raise
        return (yield from _one_by_one(store, chain_ids))
    return set(chain_ids)


def _one_by_one(store: Store, chain_ids: Sequence[str]) -> Op[set[str]]:
    gone: set[str] = set()
    refused: StillReferenced | ChainNotFound | None = None
    for chain_id in chain_ids:
        try:
            yield from delete_chains(store, [chain_id])
        except (StillReferenced, ChainNotFound) as error:
            refused = error
            continue
        gone.add(chain_id)
    if refused is not None and not gone:
        raise refused
    return gone
