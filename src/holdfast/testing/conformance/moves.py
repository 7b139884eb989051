"""How to bring a job to each state, and how to make each move of `core.lifecycle`, through a store's own operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from holdfast.core.lifecycle import Move
from holdfast.core.records import Ending, Finish, FinishKind, JobRecord, NewBlocker, NewJob, State
from holdfast.storage.operation import Op
from holdfast.testing.conformance.stage import LEASE_MS, WORKER, Stage

POISON = 3
BATCH = 100

_LAST_MOVE: Mapping[State, FinishKind] = {
    "completed": "complete",
    "failed": "fail",
    "cancelled": "cancel",
}


class Subject(NamedTuple):
    """A job in some state, with the names a move needs: tokens, the chain it waits for, the job that may follow it."""

    record: JobRecord
    token: str
    next_token: str
    blocker: str
    successor: str

    def mentions(self, row: str) -> bool:
        """Whether a row of any table is about this job."""
        return any(name in row for name in (self.record.id, *self[1:]))


def reach(stage: Stage, state: State, lease_ms: int = LEASE_MS) -> Op[Subject]:
    """Write a job of a type of its own and bring it to a state."""
    store, token = stage.store, stage.new_id()
    blocker = stage.job(f"blocks-{token}")
    job = stage.job(f"{state}-{token}", blockers=int(state == "blocked"))
    yield from store.jobs.insert([blocker, job], now=stage.now)
    if state == "blocked":
        yield from store.blockers.insert([NewBlocker(job.id, 0, blocker.id)])
    elif state != "pending":
        yield from stage.claiming(job.type, token=token, lease_ms=lease_ms)
    if state in _LAST_MOVE:
        finish = Finish(job.id, token, _LAST_MOVE[state], WORKER, job.chain_id)
        yield from store.jobs.finish([finish], now=stage.now)
        yield from store.leases.free([token])
    (record,) = yield from store.jobs.get([job.id])
    assert record.state == state
    return Subject(record, token, stage.new_id(), blocker.id, stage.new_id())


def _claim(stage: Stage, subject: Subject) -> Op[bool]:
    claimed = yield from stage.claiming(subject.record.type, token=subject.next_token)
    return bool(claimed)


def _renew(stage: Stage, subject: Subject) -> Op[bool]:
    yield from stage.store.leases.renew([subject.token], stage.now)
    held = yield from stage.store.leases.held(WORKER)
    return (subject.record.id, subject.token) in {(each.id, each.token) for each in held}


def _finish(kind: FinishKind) -> Callable[[Stage, Subject], Op[bool]]:
    def make(stage: Stage, subject: Subject) -> Op[bool]:
        record = subject.record
        finish = Finish(record.id, subject.token, kind, WORKER, record.chain_id)
        if kind == "continue":
            index = record.chain_index + 1
            finish.next = NewJob(subject.successor, record.chain_id, "next", "{}", index)
        finished = yield from stage.store.jobs.finish([finish], now=stage.now)
        return bool(finished)

    return make


def _reap(stage: Stage, subject: Subject) -> Op[bool]:
    expired = stage.pass_time(ms=LEASE_MS)
    page = yield from stage.store.leases.reap(BATCH, POISON, now=expired)
    return subject.record.id in {each.id for each in page.reaped}


def _unblock(stage: Stage, subject: Subject) -> Op[bool]:
    yield from stage.store.blockers.close([(subject.blocker, "completed")])
    opened = yield from stage.store.blockers.open_jobs([subject.record.id], stage.now)
    return bool(opened)


def _trigger(stage: Stage, subject: Subject) -> Op[bool]:
    triggered = yield from stage.store.jobs.trigger([subject.record.id], stage.now)
    return bool(triggered)


def _end(state: Literal["completed", "cancelled"]) -> Callable[[Stage, Subject], Op[bool]]:
    def make(stage: Stage, subject: Subject) -> Op[bool]:
        ended = yield from stage.store.jobs.end([Ending(subject.record.id, state)], stage.now)
        return bool(ended)

    return make


def _redrive(stage: Stage, subject: Subject) -> Op[bool]:
    redriven = yield from stage.store.jobs.redrive([subject.record.id], now=stage.now)
    return bool(redriven)


def _delete(stage: Stage, subject: Subject) -> Op[bool]:
    deleted = yield from stage.store.chains.delete([subject.record.chain_id], stage.now)
    return bool(deleted)


MAKE: Mapping[Move, Callable[[Stage, Subject], Op[bool]]] = {
    "claim": _claim,
    "renew": _renew,
    "complete": _finish("complete"),
    "continue": _finish("continue"),
    "fail": _finish("fail"),
    "retry": _finish("retry"),
    "snooze": _finish("snooze"),
    "release": _finish("release"),
    "cancel_self": _finish("cancel"),
    "reap": _reap,
    "unblock": _unblock,
    "trigger": _trigger,
    "cancel": _end("cancelled"),
    "complete_outside": _end("completed"),
    "redrive": _redrive,
    "delete": _delete,
}
"""Each makes its move and answers whether the store accepted it."""
