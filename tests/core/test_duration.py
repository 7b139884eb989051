"""Durations: every written form, exactness, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.duration import (
    MAX_DURATION_MS,
    Duration,
    format_duration,
    format_span,
    milliseconds,
)
from holdfast.core.errors import InvalidDuration


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("250ms", 250),
        ("2d", 172_800_000),
        (" 1h 30m ", 5_400_000),
        ("1.5h", 5_400_000),
        ("1D2H3M4S5MS", 93_784_005),
        ("0s", 0),
        (30, 30_000),
        (0.25, 250),
        (timedelta(minutes=2), 120_000),
        (timedelta(microseconds=1500), 2),
    ],
)
def test_durations_are_read(value: Duration, expected: int) -> None:
    assert milliseconds(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            " ",
            "s",
            "5",
            "30m1h",
            "5s5s",
            "-5s",
            "1 h",
            "5 minutes",
            "٣s",
            "1e3s",
            "9" * 40 + "s",
        ),
        *(-1, -0.001, float("nan"), float("inf"), 10**400, True, None, b"5s", [5]),
        *(timedelta(seconds=-1), timedelta.max, "36526d"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_is_not_a_duration_is_refused(value: Any) -> None:
    with pytest.raises(InvalidDuration) as caught:
        milliseconds(value)
    assert len(str(caught.value)) < 250


@given(st.integers(0, MAX_DURATION_MS))
def test_a_formatted_duration_reads_back_as_the_same(ms: int) -> None:
    assert milliseconds(format_duration(ms)) == ms


def test_durations_are_formatted_in_the_largest_units() -> None:
    assert [format_duration(ms) for ms in (0, 999, 90_000, 172_800_000)] == [
        "0s",
        "999ms",
        "1m30s",
        "2d",
    ]


@pytest.mark.parametrize(
    ("us", "text"),
    [(0, "0 ms"), (-5, "0 ms"), (999_999, "999 ms"), (59_000_000, "59 s"), (60_000_000, "1 min")],
)
def test_a_span_is_said_in_one_unit(us: int, text: str) -> None:
    assert format_span(us) == text
