"""Commands on chains: complete, continue, cancel, run now, retry, delete; each acts on the chain's last job.

Dropping dead letters: a failed chain is deleted with all that belongs to it, unless other jobs wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from holdfast.commands.blockers import tail_of, tails_of
from holdfast.commands.change import (
    Change,
    Effect,
    due_hints,
    ended_hints,
    group_by_worker,
    lost_hints,
)
from holdfast.commands.jobs import EndReport, end_jobs, redrive_jobs, refuse, run_jobs_now
from holdfast.core.errors import ChainNotFound, DatabaseBusy, JobNotFound, StillReferenced
from holdfast.core.lifecycle import CANCEL, COMPLETE, DROP
from holdfast.core.records import TERMINAL, Ending, JobRecord, NewJob, TerminalState
from holdfast.core.redaction import clean_error
from holdfast.storage.after_commit import Witness
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

_ROUNDS = 1000

SealOutput: TypeAlias = Callable[[JobRecord, str], str]
"""Returns the output of a job as it is stored."""


def complete_chain(
    store: Store, chain_id: str, output: str, seal: SealOutput | None = None
) -> Op[Change[str]]:
    """Complete a chain with an output, whichever worker holds its job. Raises: ChainNotFound, WrongState."""
    report = yield from end_chain(store, chain_id, "completed", output=output, seal=seal)
    return _end_change(chain_id, "completed", report)


def continue_chain(store: Store, chain_id: str, next: NewJob) -> Op[Change[str]]:
    """Complete a chain's present job and continue with another. Raises: ChainNotFound, WrongState."""
    report = yield from end_chain(store, chain_id, "completed", next=next)
    return _end_change(chain_id, "completed", report, next_type=next.type)


def cancel_chain(store: Store, chain_id: str, reason: str = "") -> Op[Change[str]]:
    """Cancel the live job of a chain, whichever it is by then. Raises: ChainNotFound, WrongState."""
    error = clean_error("Cancelled", reason)
    report = yield from end_chain(store, chain_id, "cancelled", error=error)
    return _end_change(chain_id, "cancelled", report, reason)


def _end_change(
    chain_id: str,
    state: TerminalState,
    report: EndReport,
    reason: str | None = None,
    next_type: str | None = None,
) -> Change[str]:
    after: dict[str, str] = {"state": state}
    if next_type is not None:
        after = {"state": "pending", "type": next_type}
    return Change(
        chain_id,
        [Effect(f"chain {chain_id}", {"state": report.ended[0].was}, after)],
        [*due_hints([next_type] if next_type else ()), *report.hints(next_type is not None)],
        report.events(state, reason, next_type),
        report.witness(state),
    )


def end_chain(
    store: Store,
    chain_id: str,
    state: TerminalState,
    *,
    output: str | None = None,
    error: str | None = None,
    next: NewJob | None = None,
    seal: SealOutput | None = None,
) -> Op[EndReport]:
    """End a chain's live job from outside, or continue it with `next`, whose place in the chain is set here.

    Concurrency: a worker that ends or continues the job meanwhile came first; the new tail is tried.
    Raises: ChainNotFound, WrongState when the chain has ended.
    """
    command = CANCEL if state == "cancelled" else COMPLETE
    for _ in range(_ROUNDS):
        tail = yield from tail_of(store, chain_id)
        if not command.allows(tail.state):
            raise command.refusal([(chain_id, tail.state)], "chain")
        successor = None
        if next is not None:
            successor = msgspec.structs.replace(
                next, chain_id=chain_id, chain_index=tail.chain_index + 1, context=tail.context
            )
        text = output
        if output is not None and seal is not None:
            # Which type the chain has reached is known only now; a job that is gone ends nothing.
            found = yield from store.jobs.get([tail.job_id])
            text = seal(found[0], output) if found else None
        ending = Ending(id=tail.job_id, state=state, output=text, error=error, next=successor)
        report = yield from end_jobs(store, [ending])
        if report.ended:
            return report
    raise DatabaseBusy(f"chain {chain_id} continued faster than it could be locked")


def run_chain_now(store: Store, chain_id: str) -> Op[Change[str]]:
    """Make the pending job of a chain due now. Raises: ChainNotFound, WrongState."""
    tail = yield from tail_of(store, chain_id)
    return (yield from run_jobs_now(store, [tail.job_id])).with_answer(chain_id)


def retry_chain(store: Store, chain_id: str) -> Op[Change[str]]:
    """Resume a failed chain from its failed job. Raises: ChainNotFound, WrongState."""
    tail = yield from tail_of(store, chain_id)
    try:
        return (yield from redrive_jobs(store, [tail.job_id])).with_answer(chain_id)
    except JobNotFound:
        # All of the chain may have been deleted since.
        yield from tail_of(store, chain_id)
        raise


def delete_chains(
    store: Store, chain_ids: Sequence[str], cascade: bool = False
) -> Op[Change[list[str]]]:
    """Delete chains with all their jobs; return the ids of the jobs. A running handler is aborted with `not_found`.

    Raises: ChainNotFound; StillReferenced with the jobs outside the set that still wait for one of them.
    """
    doomed = set(chain_ids)
    tails = yield from tails_of(store, doomed)
    if cascade:
        tails = yield from store.chains.tails(sorted((yield from _with_blockers(store, doomed))))
        # Of those that it waited for, some may have been removed long ago.
        doomed = {tail.chain_id for tail in tails}
    # Attaching a waiter touches the live tail or holds the ended one; both conflict with these locks.
    live = [tail.job_id for tail in tails if tail.state not in TERMINAL]
    yield from store.jobs.lock(live)
    yield from store.blockers.lock_ended([tail.job_id for tail in tails if tail.state in TERMINAL])
    references = yield from store.chains.references(sorted(doomed))
    if references:
        waiting = [f"job {each.job_id} of chain {each.waiting_chain_id}" for each in references]
        raise StillReferenced(
            "another job still waits for these chains"
            if len(waiting) == 1
            else f"{len(waiting)} jobs still wait for these chains",
            waiting,
        )
    held = (yield from store.jobs.get(live)) if live else []
    removed = yield from store.chains.delete(sorted(doomed))
    states = {tail.chain_id: tail.state for tail in tails}
    return Change(
        removed,
        [Effect(f"chain {each}", {"state": states[each]}) for each in sorted(doomed)],
        [
            *lost_hints(
                group_by_worker((each.worker, each.id) for each in held if each.state == "running")
            ),
            *ended_hints(doomed),
        ],
        witness=Witness(min(doomed), "gone") if doomed else None,
    )


def _with_blockers(store: Store, chain_ids: set[str]) -> Op[set[str]]:
    known, fresh = set(chain_ids), set(chain_ids)
    while fresh:
        below = yield from store.chains.blocking(sorted(fresh))
        fresh = below - known
        known |= fresh
    return known


def drop_jobs(store: Store, ids: Sequence[str]) -> Op[Change[list[str]]]:
    """Delete the chains of failed jobs, each on its own; return the ids of the dropped jobs.

    Those that did not fail, and those that other jobs wait for, are left alone.
    Raises: JobNotFound, WrongState, StillReferenced when none could be dropped.
    """
    if not ids:
        return Change([])
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
