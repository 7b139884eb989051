"""The whole state × move matrix: what `core.lifecycle` allows happens, and what it does not changes nothing.

Every state is reached, and every move made, through the store's own operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import pytest

from holdfast.core.lifecycle import TRANSITIONS, Move
from holdfast.core.records import (
    STATES,
    Ending,
    Finish,
    FinishKind,
    JobRecord,
    NewBlocker,
    NewJob,
    State,
)
from holdfast.storage.operation import Op
from tests.conformance.harness import (
    LEASE_MS,
    POISON,
    SECOND,
    WORKER,
    Conformance,
    Contents,
    StoreFixture,
)
from tests.conformance.workers import counters_equal_rows

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


def reach(fixture: StoreFixture, state: State, lease_ms: int = LEASE_MS) -> Op[Subject]:
    """Write a job of a type of its own and bring it to a state."""
    store, token = fixture.store, fixture.new_id()
    blocker = fixture.job(f"blocks-{token}")
    job = fixture.job(f"{state}-{token}", blockers=int(state == "blocked"))
    yield from store.jobs.insert([blocker, job], now=fixture.now)
    if state == "blocked":
        yield from store.blockers.insert([NewBlocker(job.id, 0, blocker.id)])
    elif state != "pending":
        yield from fixture.claim_op(job.type, token=token, lease_ms=lease_ms)
    if state in _LAST_MOVE:
        finish = Finish(job.id, token, _LAST_MOVE[state], WORKER, job.chain_id)
        yield from store.jobs.finish([finish], now=fixture.now)
        yield from store.leases.free([token])
    (record,) = yield from store.jobs.get([job.id])
    assert record.state == state
    return Subject(record, token, fixture.new_id(), blocker.id, fixture.new_id())


def _claim(fixture: StoreFixture, subject: Subject) -> Op[bool]:
    claimed = yield from fixture.claim_op(subject.record.type, token=subject.next_token)
    return bool(claimed)


def _renew(fixture: StoreFixture, subject: Subject) -> Op[bool]:
    yield from fixture.store.leases.renew([subject.token], fixture.now)
    held = yield from fixture.store.leases.held(WORKER)
    return (subject.record.id, subject.token) in {(each.id, each.token) for each in held}


def _finish(kind: FinishKind) -> Callable[[StoreFixture, Subject], Op[bool]]:
    def make(fixture: StoreFixture, subject: Subject) -> Op[bool]:
        record = subject.record
        finish = Finish(record.id, subject.token, kind, WORKER, record.chain_id)
        if kind == "park":
            finish.until = fixture.now + SECOND
        if kind == "continue":
            index = record.chain_index + 1
            finish.next = NewJob(subject.successor, record.chain_id, "next", "{}", index)
        finished = yield from fixture.store.jobs.finish([finish], now=fixture.now)
        return bool(finished)

    return make


def _reap(fixture: StoreFixture, subject: Subject) -> Op[bool]:
    expired = fixture.pass_time(ms=LEASE_MS)
    page = yield from fixture.store.leases.reap(BATCH, POISON, now=expired)
    return subject.record.id in {each.id for each in page.reaped}


def _unblock(fixture: StoreFixture, subject: Subject) -> Op[bool]:
    yield from fixture.store.blockers.close([(subject.blocker, "completed")])
    opened = yield from fixture.store.blockers.open_jobs([subject.record.id], fixture.now)
    return bool(opened)


def _trigger(fixture: StoreFixture, subject: Subject) -> Op[bool]:
    triggered = yield from fixture.store.jobs.trigger([subject.record.id], fixture.now)
    return bool(triggered)


def _end(state: Literal["completed", "cancelled"]) -> Callable[[StoreFixture, Subject], Op[bool]]:
    def make(fixture: StoreFixture, subject: Subject) -> Op[bool]:
        ended = yield from fixture.store.jobs.end([Ending(subject.record.id, state)], fixture.now)
        return bool(ended)

    return make


def _redrive(fixture: StoreFixture, subject: Subject) -> Op[bool]:
    redriven = yield from fixture.store.jobs.redrive([subject.record.id], now=fixture.now)
    return bool(redriven)


def _delete(fixture: StoreFixture, subject: Subject) -> Op[bool]:
    deleted = yield from fixture.store.chains.delete([subject.record.chain_id], fixture.now)
    return bool(deleted)


MAKE: Mapping[Move, Callable[[StoreFixture, Subject], Op[bool]]] = {
    "claim": _claim,
    "renew": _renew,
    "complete": _finish("complete"),
    "continue": _finish("continue"),
    "fail": _finish("fail"),
    "retry": _finish("retry"),
    "snooze": _finish("snooze"),
    "release": _finish("release"),
    "park": _finish("park"),
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


def _with_bystanders(fixture: StoreFixture, state: State) -> Op[Subject]:
    """A job in this state, beside others in every state."""
    for each in STATES:
        yield from reach(fixture, each, lease_ms=10 * LEASE_MS)
    return (yield from reach(fixture, state))


def _state(fixture: StoreFixture, subject: Subject) -> Op[State | None]:
    records = yield from fixture.store.jobs.get([subject.record.id])
    return records[0].state if records else None


def _of_others(contents: Contents, subject: Subject) -> Contents:
    """Every row that is not about the subject; counts are compared by their sums instead."""
    return {
        table: [row for row in rows if not subject.mentions(row)]
        for table, rows in contents.items()
        if "tally" not in table
    }


MOVES = tuple(dict.fromkeys(each.move for each in TRANSITIONS))
TARGETS = {(each.source, each.move): each.target for each in TRANSITIONS}


class LifecycleConformance(Conformance):
    """Every move from every state, beside one bystander in each state."""

    @pytest.mark.parametrize(("state", "move"), TARGETS)
    async def test_a_move_that_the_table_allows_is_made(
        self, fixture: StoreFixture, state: State, move: Move
    ) -> None:
        subject = await fixture.run(_with_bystanders(fixture, state))
        fixture.pass_time(seconds=1)
        before = await fixture.harness.contents()

        assert await fixture.run(MAKE[move](fixture, subject))

        after = await fixture.harness.contents()
        assert await fixture.run(_state(fixture, subject)) == TARGETS[state, move]
        assert _of_others(after, subject) == _of_others(before, subject)
        await fixture.run(counters_equal_rows(fixture))

    @pytest.mark.parametrize("state", STATES)
    async def test_no_move_that_the_table_does_not_allow_changes_anything(
        self, fixture: StoreFixture, state: State
    ) -> None:
        subject = await fixture.run(_with_bystanders(fixture, state))
        fixture.pass_time(seconds=1)
        before = await fixture.harness.contents()
        for move in MOVES:
            if (state, move) not in TARGETS:
                assert not await fixture.run(MAKE[move](fixture, subject)), move
                assert await fixture.harness.contents() == before, move
