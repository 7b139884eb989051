"""The map of a week: a box for each hour up to now, the busiest the strongest, and the same in words."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.core.instants import to_instant
from holdfast.core.statistics import SeriesPoint
from holdfast_dashboard.heat_map import HOUR_US, Day, Hour, draw_week, level, week_in_words, week_of

NOW = to_instant(datetime(2026, 11, 19, 14, 25, tzinfo=UTC))
THIS_HOUR = NOW - NOW % HOUR_US


def point(hours_ago: int, started: int, failed: int = 0) -> SeriesPoint:
    at = THIS_HOUR - hours_ago * HOUR_US
    return SeriesPoint(at, started, started - failed, failed, 0, 0, 0)


def test_a_week_has_seven_days_and_ends_with_the_hour_that_runs() -> None:
    days = week_of([point(0, 3), point(24, 5, 1)], NOW)
    assert [each.label for each in days] == [
        *("Fri 13", "Sat 14", "Sun 15", "Mon 16", "Tue 17", "Wed 18", "Thu 19")
    ]
    assert days[-1].hours[14] == Hour(3, 0)
    assert days[-1].hours[15:] == (None,) * 9
    assert days[-2].hours[14] == Hour(5, 1)
    assert sum(hour is not None for day in days for hour in day.hours) == 6 * 24 + 15


def test_the_busiest_hour_is_the_strongest_and_a_single_job_is_seen() -> None:
    assert [level(started, 1_000) for started in (0, 1, 200, 201, 1_000)] == [0, 1, 1, 2, 5]
    assert level(0, 0) == 0


def test_hours_are_drawn_with_what_happened_in_them() -> None:
    drawn, words = draw_week((point(0, 1_200, 2), point(30, 4)), NOW)
    assert drawn.count("<rect") == 6 * 24 + 15 + 1
    assert "Thu 19, 14:00 UTC: 1\u202f200 started, 2 failed" in drawn
    assert drawn.count('class="heat-5"') == 1
    assert drawn.count('class="heat-1"') == 1
    assert words in drawn


def test_words_say_what_the_map_shows() -> None:
    words = week_in_words(week_of([point(0, 12, 2), point(30, 4)], NOW))
    assert words == ("Last 7 days: 16 started, 2 failed; busiest hour Thu 19, 14:00 UTC with 12")
    assert week_in_words(week_of([], NOW)) == "Nothing in the last 7 days"
    assert week_in_words([Day("Mon 01", (None,))]) == "Nothing in the last 7 days"
