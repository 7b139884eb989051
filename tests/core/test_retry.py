"""Retry policies: the seeds' delays, and bounds that hold for any number of attempts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import ConfigError, InvalidDuration
from holdfast.core.retry import EVENT_RETRY, JOB_RETRY, Retry


def _delays(retry: Retry, attempts: int) -> list[float]:
    return [retry.delay_ms(attempt) / 1000 for attempt in range(1, attempts + 1)]


def test_jobs_wait_10_seconds_doubling_to_300() -> None:
    assert _delays(JOB_RETRY, 7) == [10, 20, 40, 80, 160, 300, 300]
    assert JOB_RETRY.max_attempts == 25


def test_events_wait_5_seconds_doubling_to_120_with_half_a_second_of_jitter() -> None:
    assert _delays(EVENT_RETRY, 6) == [5, 10, 20, 40, 80, 120]
    assert EVENT_RETRY.delay_ms(1, jitter01=0.5) == 5_250
    assert EVENT_RETRY.delay_ms(99, jitter01=0.99) == 120_495
    assert EVENT_RETRY.max_attempts == 3


def test_a_policy_of_minutes_doubles_up_to_an_hour() -> None:
    policy = Retry(base="1m", cap="60m", max_attempts=8)
    assert [seconds / 60 for seconds in _delays(policy, 8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert policy.max_attempts == 8


@given(
    base=st.integers(0, 10**9),
    more=st.integers(0, 10**9),
    multiplier=st.floats(1, 1e300),
    jitter=st.integers(0, 10**6),
    attempt=st.integers(-5, 10**12),
    jitter01=st.floats(0, 1, exclude_max=True),
)
def test_a_delay_stays_between_floor_and_cap_plus_jitter(
    base: int, more: int, multiplier: float, jitter: int, attempt: int, jitter01: float
) -> None:
    retry = Retry(
        base=f"{base}ms", cap=f"{base + more}ms", multiplier=multiplier, jitter=f"{jitter}ms"
    )
    delay = retry.delay_ms(attempt, jitter01)
    assert max(100, base) <= delay <= max(100, base + more + jitter)
    assert delay <= retry.delay_ms(attempt + 1, jitter01)


@pytest.mark.parametrize(
    "arguments",
    [
        {"multiplier": 0.5},
        {"multiplier": float("nan")},
        {"multiplier": float("inf")},
        {"base": "10m"},
        {"max_attempts": 0},
        {"max_attempts": -1},
        {"max_attempts": "3"},
        {"max_attempts": 2.5},
        {"max_attempts": float("nan")},
        {"max_attempts": True},
        {"max_attempts": 2**31},
        {"multiplier": "fast"},
        {"multiplier": None},
        {"multiplier": 10**400},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        Retry(**arguments)
    assert caught.value.help


def test_a_bad_duration_is_refused_as_such() -> None:
    with pytest.raises(InvalidDuration):
        Retry(base="soon")


def test_policies_are_values() -> None:
    assert Retry(base="60s", cap=3600, max_attempts=8) == Retry(
        base="1m", cap="60m", max_attempts=8
    )
    assert len({Retry(), JOB_RETRY}) == 1
