"""The whole state × move matrix: what `core.lifecycle` allows happens, and what it does not changes nothing."""

from __future__ import annotations

from itertools import product

import pytest

from holdfast.core.lifecycle import MOVES, Move, transition
from holdfast.core.records import STATES, State
from holdfast.storage.operation import Op
from holdfast.testing.conformance.counters import counters_equal_rows
from holdfast.testing.conformance.harness import Contents
from holdfast.testing.conformance.moves import MAKE, Subject, reach
from holdfast.testing.conformance.stage import LEASE_MS, Conformance, Stage


def _with_bystanders(stage: Stage, state: State) -> Op[Subject]:
    """A job in this state, beside others in every state."""
    for each in STATES:
        yield from reach(stage, each, lease_ms=10 * LEASE_MS)
    return (yield from reach(stage, state))


def _state(stage: Stage, subject: Subject) -> Op[State | None]:
    records = yield from stage.store.jobs.get([subject.record.id])
    return records[0].state if records else None


def _of_others(contents: Contents, subject: Subject) -> Contents:
    """Every row that is not about the subject; counts are compared by their sums instead."""
    return {
        table: [row for row in rows if not subject.mentions(row)]
        for table, rows in contents.items()
        if "tally" not in table
    }


class LifecycleConformance(Conformance):
    """Every move from every state, beside one bystander in each state."""

    @pytest.mark.parametrize(("state", "move"), list(product(STATES, MOVES)))
    async def test_a_move_does_what_the_table_says(
        self, stage: Stage, state: State, move: Move
    ) -> None:
        subject = await stage.run(_with_bystanders(stage, state))
        stage.pass_time(seconds=1)
        before = await stage.harness.contents()

        accepted = await stage.run(MAKE[move](stage, subject))

        after = await stage.harness.contents()
        allowed = transition(state, move)
        assert accepted == (allowed is not None)
        if allowed is None:
            assert after == before
        else:
            assert await stage.run(_state(stage, subject)) == allowed.target
            assert _of_others(after, subject) == _of_others(before, subject)
        await stage.run(counters_equal_rows(stage))
