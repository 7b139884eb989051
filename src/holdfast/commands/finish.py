"""Ending attempts in a transaction with what follows: fan-in for awaited jobs, blockers of successors."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.commands.blockers import FanIn, attach_blockers, close_chains, refuse_circle
from holdfast.core.records import Finish, Finished, Instant, State
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

_ENDS: dict[str, State] = {"complete": "completed", "fail": "failed", "cancel": "cancelled"}


class FinishReport(msgspec.Struct):
    """Which finishes were accepted, and what they led to."""

    accepted: list[Finished]
    fan_in: FanIn


def finish_attempts(
    store: Store,
    finishes: Sequence[Finish],
    freed: Sequence[str] = (),
    now: Instant | None = None,
) -> Op[FinishReport]:
    """End attempts in one transaction, awaited ones included. Raises: CircularWait."""
    accepted = yield from store.jobs.finish(finishes, freed, awaited=True, now=now)
    hits = {each.id: each for each in accepted}
    mine = [each for each in finishes if each.id in hits]
    edges = [edge for each in mine if each.kind == "continue" for edge in each.next_blockers]
    if edges:
        yield from attach_blockers(store, edges, now)
        waiting = [each for each in mine if each.kind == "continue" and each.next_blockers]
        for each in waiting:
            # A chain that is not awaited has no waiters, unless they were attached in this very transaction.
            if hits[each.id].awaited or len(waiting) > 1:
                yield from refuse_circle(store, each.chain_id, each.next_blockers)
    ended = [
        (each.chain_id, _ENDS[each.kind])
        for each in mine
        if each.kind in _ENDS and hits[each.id].awaited
    ]
    fan_in = yield from close_chains(store, ended, now)
    return FinishReport(accepted, fan_in)
