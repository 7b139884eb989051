"""Catching up: which missed slots run, and a jitter that is the same everywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.cycle import CatchUp, due_slots, jitter_us
from holdfast.core.errors import InvalidSchedule
from holdfast.core.schedule import Cron, Interval

MINUTE = 60_000_000
HOUR = 60 * MINUTE
NONE, LAST = CatchUp(0), CatchUp(1)


def test_nothing_is_due_before_the_next_slot() -> None:
    for policy in (NONE, LAST, CatchUp(5)):
        assert due_slots(Interval("1h"), 3 * HOUR, 3 * HOUR + 59 * MINUTE, policy) == []


def test_a_slot_on_time_is_due_under_every_policy() -> None:
    for policy in (NONE, LAST, CatchUp(5)):
        assert due_slots(Interval("1h"), 3 * HOUR, 4 * HOUR + MINUTE, policy) == [4 * HOUR]


def test_missed_slots_are_made_up_for_by_policy() -> None:
    schedule, last, now = Interval("1h"), 3 * HOUR, 9 * HOUR + 30 * MINUTE
    assert due_slots(schedule, last, now, NONE) == []
    assert due_slots(schedule, last, now, LAST) == [9 * HOUR]
    assert due_slots(schedule, last, now, CatchUp(3)) == [7 * HOUR, 8 * HOUR, 9 * HOUR]
    assert due_slots(schedule, last, now, CatchUp(99)) == [slot * HOUR for slot in range(4, 10)]


def test_without_catching_up_a_slot_counts_as_missed_after_the_grace() -> None:
    daily = Cron("17 3 * * *")
    slot = 3 * HOUR + 17 * MINUTE
    assert due_slots(daily, 0, slot + 5 * MINUTE, NONE) == [slot]
    assert due_slots(daily, 0, slot + 5 * MINUTE + 1, NONE) == []
    assert due_slots(daily, 0, slot + HOUR, NONE, grace_ms=3_600_000) == [slot]


@given(
    last=st.integers(0, 10**15),
    absence=st.integers(0, 10**13),
    policy=st.builds(CatchUp, st.integers(0, 20)),
)
def test_no_slot_is_due_twice(last: int, absence: int, policy: CatchUp) -> None:
    schedule, now = Interval("2m"), last + absence
    due = due_slots(schedule, last, now, policy)
    assert due == sorted(set(due))
    assert all(last < slot <= now for slot in due)
    if due:
        assert due_slots(schedule, due[-1], now, policy) == []


@pytest.mark.parametrize("text", ["none", "last", "all(2)", "all(1000)"])
def test_policies_read_back_as_they_are_written(text: str) -> None:
    assert str(CatchUp.parse(text)) == text


@pytest.mark.parametrize("text", ["", "all", "all()", "all(0)", "all(1001)", "first", "all(-1)"])
def test_unknown_policies_are_refused(text: str) -> None:
    with pytest.raises(InvalidSchedule, match="catch-up policy"):
        CatchUp.parse(text)


@given(st.text(), st.integers(0, 10**16), st.integers(0, 10**6))
def test_the_jitter_stays_below_its_limit_and_never_changes(
    cycle: str, slot: int, limit_ms: int
) -> None:
    jitter = jitter_us(cycle, slot, limit_ms)
    assert 0 <= jitter <= max(0, limit_ms * 1000 - 1)
    assert jitter == jitter_us(cycle, slot, limit_ms)


def test_the_jitter_differs_between_cycles_and_slots() -> None:
    seen = {jitter_us(cycle, slot, 60_000) for cycle in ("a", "b") for slot in range(50)}
    assert len(seen) > 90
