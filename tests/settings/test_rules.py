"""Rules between settings: what does not go together is refused, and what nobody set follows."""

from __future__ import annotations

import pytest

from holdfast.core.errors import (
    ConfigError,
    HeartbeatTooSlow,
    ReaperTooSlow,
    ShardPairInvalid,
    ShutdownTooLong,
)
from holdfast.core.lease import Lease
from holdfast.settings import check_leases, read_settings


@pytest.mark.parametrize(
    ("environ", "error"),
    [
        ({"OUTBOX_LEASE_HEARTBEAT_MS": "20000"}, HeartbeatTooSlow),
        (
            {"OUTBOX_LEASE_HEARTBEAT_MS": "10000", "OUTBOX_LEASE_DURATION_MS": "30000"},
            HeartbeatTooSlow,
        ),
        ({"WORKER_SHUTDOWN_TIMEOUT_MS": "60001"}, ShutdownTooLong),
        ({"OUTBOX_REAPER_INTERVAL_MS": "60000"}, ReaperTooSlow),
        ({"WORKER_TICK_SHARD_INDEX": "0"}, ShardPairInvalid),
        ({"WORKER_TICK_SHARD_COUNT": "2"}, ShardPairInvalid),
        ({"WORKER_TICK_SHARD_INDEX": "2", "WORKER_TICK_SHARD_COUNT": "2"}, ShardPairInvalid),
        ({"OUTBOX_RETRY_BASE_MS": "200000"}, ConfigError),
        ({"OUTBOX_WORKER_RETRY_MAX_MS": "10"}, ConfigError),
        ({"HOLDFAST_RETRY_MAX_MS": "10"}, ConfigError),
        (
            {"WORKER_IDLE_BACKOFF_MIN_MS": "40000", "WORKER_IDLE_BACKOFF_MAX_MS": "30000"},
            ConfigError,
        ),
        ({"OUTBOX_WORKER_POLL_MS": "40000", "WORKER_IDLE_BACKOFF_MAX_MS": "30000"}, ConfigError),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    environ: dict[str, str], error: type[ConfigError]
) -> None:
    with pytest.raises(error) as caught:
        read_settings(environ)
    name, value = next(iter(environ.items()))
    assert f"{name}={value} (env)" in caught.value.render()
    assert "  rule: " in caught.value.render()
    assert "  help: set " in caught.value.render()


def test_the_error_names_origins_rule_and_values_that_would_do() -> None:
    with pytest.raises(HeartbeatTooSlow) as caught:
        read_settings(
            {"OUTBOX_LEASE_HEARTBEAT_MS": "20000"}, None, {"OUTBOX_LEASE_DURATION_MS": 30000}
        )
    assert caught.value.render() == (
        "error[HF017]: heartbeat is too slow for the lease\n"
        "  OUTBOX_LEASE_HEARTBEAT_MS=20000 (env)   OUTBOX_LEASE_DURATION_MS=30000 (argument)\n"
        "  rule: heartbeat < lease / 3, so that two lost heartbeats do not cost the lease\n"
        "  help: set OUTBOX_LEASE_HEARTBEAT_MS=9000, or a lease of 75000"
    )


def test_timings_that_nobody_set_follow_the_lease() -> None:
    settings = read_settings({"OUTBOX_LEASE_DURATION_MS": "10000"})
    assert settings.outbox.lease_heartbeat_ms == 3_000
    assert settings.outbox.reaper_interval_ms == 5_000
    assert settings.worker.shutdown_timeout_ms == 10_000


@pytest.mark.parametrize("name", ["WORKER_IDLE_BACKOFF_MIN_MS", "OUTBOX_WORKER_POLL_MS"])
def test_a_longest_pause_that_nobody_set_follows_the_first(name: str) -> None:
    assert read_settings({name: "40000"}).worker.idle_backoff_max_ms == 40_000
    assert read_settings({name: "20000"}).worker.idle_backoff_max_ms == 30_000


def test_the_embedded_workers_lease_is_checked_only_when_it_is_on() -> None:
    environ = {"OUTBOX_WORKER_PROCESSING_TIMEOUT_MS": "20000", "OUTBOX_LEASE_HEARTBEAT_MS": "9000"}
    assert not read_settings(environ).embedded.enabled
    with pytest.raises(HeartbeatTooSlow, match="heartbeat") as caught:
        read_settings({**environ, "OUTBOX_WORKER_ENABLED": "true"})
    assert "OUTBOX_WORKER_PROCESSING_TIMEOUT_MS=20000 (env)" in caught.value.render()


def test_leases_of_job_types_are_held_against_the_timings() -> None:
    settings = read_settings({"OUTBOX_LEASE_HEARTBEAT_MS": "9000"})
    check_leases(settings, {"mail": Lease("30s")})
    check_leases(read_settings({}), {"mail": Lease("1s")})
    with pytest.raises(HeartbeatTooSlow) as caught:
        check_leases(settings, {"mail": Lease("30s"), "ping": Lease("20s")})
    assert "lease of ping=20000 (code)" in caught.value.render()
