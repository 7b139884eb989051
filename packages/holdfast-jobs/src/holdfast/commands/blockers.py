"""Fan-in: attaching a job to the chains it waits for, and opening it when the last of them ends.

Attaching marks the live tail of a blocking chain as awaited, which conflicts with its end: either the end sees the
mark, or the attaching sees the end. What ends an awaited chain locks the dependents in id order before deciding, so
that any number of blockers ending at once open a job exactly once.

The last jobs of chains: the state of each chain, and whether there is such a chain at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.core.errors import ChainNotFound, CircularWait, DatabaseBusy, UnknownJobType
from holdfast.core.instants import Instant
from holdfast.core.records import (
    ON_FAILED_TRIES,
    TERMINAL,
    ChainRecord,
    EndedJob,
    Ending,
    JobRef,
    NewBlocker,
    State,
    Tail,
)
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


def tails_of(store: Store, chain_ids: Iterable[str]) -> Op[list[Tail]]:
    """Read the last job of each chain. Raises: ChainNotFound when one of them does not exist."""
    wanted = sorted(set(chain_ids))
    tails = yield from store.chains.tails(wanted)
    missing = set(wanted) - {tail.chain_id for tail in tails}
    if missing:
        raise (yield from no_such_chain(store, min(missing)))
    return tails


def no_such_chain(store: Store, id: str) -> Op[ChainNotFound]:
    """Return the error for a chain that does not exist; the id may be that of a later job. One statement."""
    for job in (yield from store.jobs.get([id])):
        return ChainNotFound(
            f"there is no chain {id}",
            help=f"this is job {job.chain_index + 1} of chain {job.chain_id}: use the chain's id",
        )
    return ChainNotFound(f"there is no chain {id}")


def tail_of(store: Store, chain_id: str) -> Op[Tail]:
    """Read the last job of a chain. Raises: ChainNotFound."""
    (tail,) = yield from tails_of(store, [chain_id])
    return tail


_ROUNDS = 1000

FURTHEST = 10_000
"""Edges that are followed in search of a circle."""


class FanIn(msgspec.Struct):
    """What the end of chains led to: jobs newly opened, and dependents that failed with them."""

    opened: list[JobRef]
    failed: list[EndedJob]


def check_waits(type: str, waits_for: Sequence[str], chains: Sequence[ChainRecord]) -> None:
    """Refuse chains that a job type does not declare to wait for. Raises: UnknownJobType."""
    for chain in chains:
        if chain.type not in waits_for:
            raise UnknownJobType(
                f"{type} does not declare that it waits for {chain.type}",
                help=f"add {chain.type!r} to waits_for of {type}, or omit waits_for",
            )


def attach_blockers(
    store: Store, edges: Sequence[NewBlocker], now: Instant | None = None
) -> Op[dict[str, State]]:
    """Write the edges of jobs that were inserted as blocked; return the states of those that are not any more."""
    yield from store.blockers.insert(edges)
    ended = yield from _settle(store, sorted({edge.chain_id for edge in edges}))
    if not ended:
        return {}
    yield from _close(store, ended, now)
    records = yield from store.jobs.get(sorted({edge.job_id for edge in edges}))
    return {each.id: each.state for each in records if each.state != "blocked"}


def refuse_circle(store: Store, chain_id: str, edges: Sequence[NewBlocker]) -> Op[None]:
    """Refuse that a chain waits for one that waits for it, itself or through others. Raises: CircularWait.

    Concurrency: after the edges were attached. The tails they wait for are locked then, so of two chains that close a
    circle together the second sees the first.
    """
    dependents = yield from store.blockers.dependents(chain_id, FURTHEST)
    circle = circle_of(chain_id, [edge.chain_id for edge in edges], dependents)
    if circle:
        raise CircularWait(
            "the next job would wait for a chain that waits for it",
            details=[" waits for ".join(f"chain {each}" for each in circle)],
        )


def circle_of(
    chain_id: str, blockers: Sequence[str], dependents: Sequence[tuple[str, str]]
) -> list[str]:
    """Return the chains of a circle in the order of their waiting, the first one again at its end; none without one."""
    # The first ones found are the nearest, so following them leads back.
    waits_for = dict(reversed(dependents))
    for blocker in blockers:
        if blocker not in waits_for:
            continue
        path = [chain_id, blocker]
        while path[-1] != chain_id and len(path) <= len(waits_for) + 1:
            path.append(waits_for[path[-1]])
        return path
    return []


def _settle(store: Store, chain_ids: Sequence[str]) -> Op[list[tuple[str, State]]]:
    """Mark every live chain as awaited; return those that have ended, held so that no redrive slips past."""
    open_ids = list(chain_ids)
    ended: list[tuple[str, State]] = []
    for _ in range(_ROUNDS):
        tails = yield from tails_of(store, open_ids)
        live = [tail for tail in tails if tail.state not in TERMINAL]
        over = [tail for tail in tails if tail.state in TERMINAL]
        marked = (yield from store.blockers.wait_on(_ids(live))) if live else set()
        held = (yield from store.blockers.hold_ended(_ids(over))) if over else set()
        ended += [(tail.chain_id, tail.state) for tail in over if tail.job_id in held]
        settled = marked | held
        open_ids = [tail.chain_id for tail in tails if tail.job_id not in settled]
        if not open_ids:
            return ended
    raise DatabaseBusy("the blocking chains continued faster than they could be locked")


def _ids(tails: Sequence[Tail]) -> list[str]:
    return [tail.job_id for tail in tails]


def fail_later(
    store: Store, failed: Sequence[str], now: Instant | None = None
) -> Op[dict[str, JobRef]]:
    """Leave jobs that this transaction has failed to a worker that calls their `on_failed`; return those that are."""
    if not failed:
        return {}
    taken = yield from store.on_failed.defer(sorted(failed), ON_FAILED_TRIES, now)
    return {each.id: each for each in taken}


def close_chains(
    store: Store, ended: Sequence[tuple[str, State]], now: Instant | None = None
) -> Op[FanIn]:
    """Release everything that waits for chains that have just ended, in the transaction that ended them."""
    chains = sorted({chain_id for chain_id, _ in ended})
    if not chains:
        return FanIn([], [])
    yield from store.blockers.lock_dependents(chains)
    return (yield from _close(store, ended, now))


def _close(store: Store, ended: Sequence[tuple[str, State]], now: Instant | None) -> Op[FanIn]:
    result = FanIn([], [])
    todo = list(ended)
    while todo:
        closed = yield from store.blockers.close(todo)
        failed_by = {edge.job_id: edge.chain_id for edge in closed if edge.fails}
        parents = {edge.job_id for edge in closed if edge.step is not None}
        free = sorted({edge.job_id for edge in closed} - failed_by.keys() - parents)
        if free:
            result.opened += yield from store.blockers.open_jobs(free, now)
        if parents:
            result.opened += yield from store.steps.wake_parents(sorted(parents), now)
        todo = []
        if failed_by:
            endings = [
                Ending(
                    id=job_id,
                    state="failed",
                    error=f"BlockerFailed: chain {failed_by[job_id]} did not complete",
                    fingerprint="blocker-failed",
                )
                for job_id in sorted(failed_by)
            ]
            unmet = yield from store.jobs.end(endings, now)
            failing = yield from fail_later(store, [each.id for each in unmet], now)
            result.opened += failing.values()
            failed = [each for each in unmet if each.id not in failing]
            result.failed += failed
            todo = [(each.chain_id, "failed") for each in failed if each.awaited]
            if todo:
                yield from store.blockers.lock_dependents(sorted({chain for chain, _ in todo}))
    return result
