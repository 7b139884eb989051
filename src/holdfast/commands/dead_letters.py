"""Dropping dead letters: a failed chain is deleted with all that belongs to it, unless other jobs wait for it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.commands.chains import delete_chains
from holdfast.commands.change import Change, Effect, ended_hints
from holdfast.commands.jobs import refuse
from holdfast.core.errors import ChainNotFound, StillReferenced
from holdfast.core.lifecycle import DROP
from holdfast.storage.after_commit import Witness
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


def drop_jobs(store: Store, ids: Sequence[str]) -> Op[Change[list[str]]]:
    """Delete the chains of failed jobs, each on its own; return the ids of the dropped jobs.

    Those that did not fail, and those that other jobs wait for, are left alone.
    Raises: JobNotFound, WrongState, StillReferenced when none could be dropped.
    """
    records = yield from store.jobs.get(ids)
    failed = [each for each in records if each.state in DROP.states]
    if not failed:
        yield from refuse(store, ids, DROP)
    gone = yield from _drop_chains(store, sorted({each.chain_id for each in failed}))
    return Change(
        [each.id for each in failed if each.chain_id in gone],
        [Effect(f"chain {each}", {"state": "failed"}) for each in sorted(gone)],
        ended_hints(gone),
        witness=Witness(min(gone), "gone") if gone else None,
    )


def _drop_chains(store: Store, chain_ids: Sequence[str]) -> Op[set[str]]:
    try:
        yield from delete_chains(store, chain_ids)
    except (StillReferenced, ChainNotFound):
        # Nothing was deleted yet: the references are read before anything is written.
        if len(chain_ids) == 1:
            raise
        return (yield from _drop_one_by_one(store, chain_ids))
    return set(chain_ids)


def _drop_one_by_one(store: Store, chain_ids: Sequence[str]) -> Op[set[str]]:
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
