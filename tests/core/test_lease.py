"""Leases: derived times, the rules between them, and the local deadline."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import ConfigError, HeartbeatTooSlow, ReaperTooSlow, ShutdownTooLong
from holdfast.core.lease import (
    DEFAULT,
    Lease,
    Timing,
    check_timing,
    default_heartbeat_ms,
    default_reaper_interval_ms,
    default_shutdown_ms,
    local_deadline_ms,
)

LEASE = Timing("OUTBOX_LEASE_DURATION_MS", 30_000, "default")
HEARTBEAT = Timing("OUTBOX_LEASE_HEARTBEAT_MS", 9_000, "default")
SHUTDOWN = Timing("WORKER_SHUTDOWN_TIMEOUT_MS", 30_000, "default")
REAPER = Timing("OUTBOX_REAPER_INTERVAL_MS", 10_000, "default")


@pytest.mark.parametrize(
    ("lease", "duration", "heartbeat"),
    [
        (Lease("30s"), 30_000, 9_000),
        (DEFAULT, 60_000, 15_000),
        (Lease("120s"), 120_000, 15_000),
        (Lease("1s"), 1_000, 300),
        (Lease("60s", heartbeat="5s"), 60_000, 5_000),
    ],
)
def test_the_heartbeat_follows_the_lease_unless_it_is_set(
    lease: Lease, duration: int, heartbeat: int
) -> None:
    assert (lease.duration_ms, lease.heartbeat_ms) == (duration, heartbeat)


def test_an_attempt_may_run_three_leases() -> None:
    assert DEFAULT.timeout_ms == 180_000


def test_a_lease_that_cannot_be_renewed_is_refused() -> None:
    with pytest.raises(ConfigError, match="too short"):
        Lease("50ms")
    # PostgreSQL's column holds no more, and each claim of the type, and of all others with it, would fail.
    assert Lease("24d").duration_ms < 2**31
    with pytest.raises(ConfigError, match="a lease of 25d is too long"):
        Lease("25d")
    with pytest.raises(HeartbeatTooSlow):
        Lease("30s", heartbeat="10s")
    with pytest.raises(ConfigError, match="cannot be 0s"):
        Lease("30s", heartbeat="0s")


@given(st.integers(100, 10**9))
def test_times_that_nobody_set_always_fit_the_lease(lease_ms: int) -> None:
    check_timing(
        [Timing("lease", lease_ms)],
        Timing("heartbeat", default_heartbeat_ms(lease_ms)),
        Timing("shutdown", default_shutdown_ms(lease_ms)),
        Timing("reaper", default_reaper_interval_ms(lease_ms)),
    )


def test_a_slow_heartbeat_is_refused_with_origins_rule_and_values_that_would_do() -> None:
    slow = Timing("OUTBOX_LEASE_HEARTBEAT_MS", 20_000, "env")
    with pytest.raises(HeartbeatTooSlow) as caught:
        check_timing([LEASE], slow, SHUTDOWN, REAPER)
    assert caught.value.render() == (
        "error[HF017]: heartbeat is too slow for the lease\n"
        "  OUTBOX_LEASE_HEARTBEAT_MS=20000 (env)   OUTBOX_LEASE_DURATION_MS=30000 (default)\n"
        "  rule: heartbeat < lease / 3, so that two lost heartbeats do not cost the lease\n"
        "  help: set OUTBOX_LEASE_HEARTBEAT_MS=9000, or a lease of 75000"
    )


def test_a_heartbeat_of_exactly_a_third_is_too_slow() -> None:
    with pytest.raises(HeartbeatTooSlow):
        check_timing([LEASE], Timing("h", 10_000), SHUTDOWN, REAPER)
    check_timing([LEASE], Timing("h", 9_999), SHUTDOWN, REAPER)


def test_a_shutdown_longer_than_the_lease_is_refused() -> None:
    with pytest.raises(
        ShutdownTooLong, match="WORKER_SHUTDOWN_TIMEOUT_MS=30000, or a lease of 30001"
    ):
        check_timing([LEASE], HEARTBEAT, Timing(SHUTDOWN.name, 30_001, "env"), REAPER)


def test_a_reaper_as_slow_as_the_lease_is_refused() -> None:
    with pytest.raises(ReaperTooSlow, match="OUTBOX_REAPER_INTERVAL_MS=10000, or a lease of 60000"):
        check_timing([LEASE], HEARTBEAT, SHUTDOWN, Timing(REAPER.name, 30_000, "env"))


def test_the_smallest_lease_decides() -> None:
    short = Timing("type mail", 6_000, "@app.job")
    with pytest.raises(HeartbeatTooSlow, match="lease of") as caught:
        check_timing([LEASE, short], HEARTBEAT, SHUTDOWN, REAPER)
    assert "type mail=6000 (@app.job)" in caught.value.render()


@pytest.mark.parametrize(
    ("lease_ms", "margin_ms"),
    [(60_000, 6_000), (30_000, 3_000), (10_000, 1_000), (5_000, 1_000), (1_000, 200), (100, 20)],
)
def test_the_local_deadline_leaves_a_margin(lease_ms: int, margin_ms: int) -> None:
    assert local_deadline_ms(1_000, lease_ms) == 1_000 + lease_ms - margin_ms


@given(st.integers(100, 10**9))
def test_the_local_deadline_lies_between_a_default_heartbeat_and_the_end(lease_ms: int) -> None:
    assert 2 * default_heartbeat_ms(lease_ms) < local_deadline_ms(0, lease_ms) < lease_ms
