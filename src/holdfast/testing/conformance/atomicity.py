"""Atomicity: a transaction that is rolled back leaves nothing in any table, one that commits leaves everything."""

from __future__ import annotations

import pytest

from holdfast.core.lifecycle import MOVES, Move, transition
from holdfast.core.records import STATES, NewKey, State, Subscription, WorkerSign
from holdfast.storage.operation import Op
from holdfast.testing.conformance.moves import MAKE, reach
from holdfast.testing.conformance.stage import MAIL, Conformance, Stage


def _first_state(move: Move) -> State:
    """A state from which this move is allowed."""
    return next(state for state in STATES if transition(state, move))


def _touch_everything_else(stage: Stage) -> Op[None]:
    """Write to the tables that no move of a job touches."""
    store = stage.store
    yield from store.chains.claim_keys([NewKey(MAIL, "k", stage.new_id())], stage.now)
    yield from store.events.subscribe([Subscription("order.placed", "mail")])
    sign = WorkerSign("w", "w", "host", 1, "1.0", 1, "[]", "{}", None)
    yield from store.workers.sign(sign, stage.now)
    yield from store.workers.set_type(MAIL, paused=True, by="ana", now=stage.now)
    yield from store.schema.identify(stage.new_id())


class AtomicityConformance(Conformance):
    """All or nothing, for every operation."""

    @pytest.mark.parametrize("move", MOVES)
    async def test_a_move_that_is_rolled_back_never_happened(
        self, stage: Stage, move: Move
    ) -> None:
        subject = await stage.run(reach(stage, _first_state(move)))
        before = await stage.harness.contents()
        transaction = await stage.harness.begin()
        assert await transaction.run(MAKE[move](stage, subject))
        await transaction.rollback()
        assert await stage.harness.contents() == before

    @pytest.mark.parametrize("state", STATES)
    async def test_a_whole_life_that_is_rolled_back_leaves_nothing(
        self, stage: Stage, state: State
    ) -> None:
        before = await stage.harness.contents()
        transaction = await stage.harness.begin()
        await transaction.run(reach(stage, state))
        await transaction.run(_touch_everything_else(stage))
        await transaction.rollback()
        assert await stage.harness.contents() == before

    async def test_what_is_committed_is_there(self, stage: Stage) -> None:
        transaction = await stage.harness.begin()
        subject = await transaction.run(reach(stage, "completed"))
        await transaction.run(_touch_everything_else(stage))
        await transaction.commit()
        assert await stage.read(subject.record.id) == subject.record
        assert len(await stage.run(stage.store.workers.settings())) == 1

    async def test_an_operation_that_fails_halfway_leaves_nothing(self, stage: Stage) -> None:
        job = stage.job()

        def failing() -> Op[None]:
            yield from stage.store.jobs.insert([job], now=stage.now)
            raise ArithmeticError("halfway")

        before = await stage.harness.contents()
        with pytest.raises(ArithmeticError):
            await stage.run(failing())
        assert await stage.harness.contents() == before
