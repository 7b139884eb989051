"""The pauses between ticks."""

from __future__ import annotations

from holdfast.scheduler.background import LoopBackoff, LoopDelays


def test_idle_pauses_double_up_to_the_longest_and_begin_anew_after_work() -> None:
    pace = LoopBackoff(LoopDelays())
    assert [pace.after_tick(0, None, 0.0) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert pace.after_tick(5, None, 0.0) == 0.25
    assert pace.after_tick(0, None, 0.0) == 1


def test_busy_and_idle_pauses_have_a_random_part() -> None:
    pace = LoopBackoff(LoopDelays())
    assert pace.after_tick(1, None, 0.5) == 0.5
    assert pace.after_tick(0, None, 0.5) == 1.25


def test_a_failed_tick_is_followed_by_a_long_pause_with_a_random_part_of_its_own() -> None:
    pace = LoopBackoff(LoopDelays())
    assert pace.after_error(0.0) == 30
    assert pace.after_error(0.5) == 31


def test_what_is_due_soon_shortens_the_pause_but_not_below_the_busy_one() -> None:
    pace = LoopBackoff(LoopDelays(idle_min_ms=30_000))
    assert pace.after_tick(0, 7_000, 0.0) == 7
    assert pace.after_tick(0, 3, 0.0) == 0.25
    assert pace.after_tick(0, 3_600_000, 0.0) == 30
