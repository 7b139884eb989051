"""Ends from outside: cancel jobs or chains, complete or continue a chain without a worker."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.commands.blockers import FanIn, close_chains
from holdfast.commands.chain_tail import live_tail
from holdfast.commands.requeue import refuse
from holdfast.core.error_text import clean_error
from holdfast.core.errors import DatabaseBusy
from holdfast.core.lifecycle import CANCEL
from holdfast.core.records import EndedJob, Ending, Instant, NewJob, State, TerminalState
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

_ROUNDS = 1000


class EndReport(msgspec.Struct):
    """What was ended, and what that led to."""

    ended: list[EndedJob]
    fan_in: FanIn


def end_jobs(store: Store, endings: Sequence[Ending], now: Instant | None = None) -> Op[EndReport]:
    """End live jobs whoever holds them; jobs that are not live are left out of the report."""
    live = yield from store.jobs.lock([each.id for each in endings])
    mine = [each for each in endings if each.id in live]
    if not mine:
        return EndReport([], FanIn([], []))
    ended = yield from store.jobs.end(mine, now)
    states: dict[str, State] = {each.id: each.state for each in mine if each.next is None}
    over = [
        (each.chain_id, states[each.id]) for each in ended if each.awaited and each.id in states
    ]
    fan_in = yield from close_chains(store, over, now)
    return EndReport(ended, fan_in)


def cancel_jobs(
    store: Store, ids: Sequence[str], reason: str = "", now: Instant | None = None
) -> Op[EndReport]:
    """Cancel those of the jobs that are live, at once; a running handler is told.

    Raises: JobNotFound, WrongState when none is.
    """
    error = clean_error("Cancelled", reason)
    endings = [Ending(id=each, state="cancelled", error=error) for each in ids]
    report = yield from end_jobs(store, endings, now)
    if ids and not report.ended:
        yield from refuse(store, ids, CANCEL)
    return report


def cancel_chain(
    store: Store, chain_id: str, reason: str = "", now: Instant | None = None
) -> Op[EndReport]:
    """Cancel the live job of a chain, whichever it is by then. Raises: ChainNotFound, WrongState."""
    error = clean_error("Cancelled", reason)
    return (yield from end_chain(store, chain_id, "cancelled", error=error, now=now))


def end_chain(
    store: Store,
    chain_id: str,
    state: TerminalState,
    *,
    output: str | None = None,
    error: str | None = None,
    next: NewJob | None = None,
    now: Instant | None = None,
) -> Op[EndReport]:
    """End a chain's live job from outside, or continue it with `next`, whose place in the chain is set here.

    Concurrency: a worker that ends or continues the job meanwhile came first; the new tail is tried.
    Raises: ChainNotFound, WrongState when the chain has ended.
    """
    for _ in range(_ROUNDS):
        tail = yield from live_tail(store, chain_id)
        successor = None
        if next is not None:
            successor = msgspec.structs.replace(
                next, chain_id=chain_id, chain_index=tail.chain_index + 1
            )
        ending = Ending(id=tail.job_id, state=state, output=output, error=error, next=successor)
        report = yield from end_jobs(store, [ending], now)
        if report.ended:
            return report
    raise DatabaseBusy(f"chain {chain_id} went on faster than it could be ended")
