"""Budgets: items and time, each alone and both together."""

from __future__ import annotations

from holdfast.scheduler.runner import Budget


def test_a_budget_is_used_up_by_items() -> None:
    budget = Budget(started_ms=0, items=3)
    assert not budget.after(2).is_exhausted(10**9)
    assert budget.after(3).is_exhausted(0)
    assert budget.after(5).items == 0


def test_a_budget_is_used_up_by_time() -> None:
    budget = Budget(started_ms=1_000, milliseconds=500)
    assert budget.remaining_ms(1_200) == 300
    assert not budget.is_exhausted(1_499)
    assert budget.is_exhausted(1_500)
    assert budget.remaining_ms(9_999) == 0


def test_an_open_budget_is_never_used_up() -> None:
    budget = Budget(started_ms=0)
    assert not budget.after(10**9).is_exhausted(10**12)
    assert budget.remaining_ms(10**12) is None
    assert budget.room(50) == 50


def test_room_is_what_still_fits() -> None:
    budget = Budget(started_ms=0, items=30)
    assert budget.room(50) == 30
    assert budget.after(25).room(50) == 5


def test_a_budget_within_another_is_the_tighter_of_both() -> None:
    tick = Budget(started_ms=0, milliseconds=480_000)
    runner = Budget(started_ms=450_000, items=200, milliseconds=60_000)
    assert runner.within(tick, 450_000) == Budget(450_000, 200, 30_000)
    assert Budget(0).within(Budget(0), 5) == Budget(5)
