"""What people see of the settings, what workers are given of them, and that the seeds' names are all there."""

from __future__ import annotations

import pytest

from holdfast.core.retry import EVENT_RETRY, JOB_RETRY
from holdfast.settings import GROUPS, effective, event_retry, job_retry, read_settings, variables_of
from holdfast.worker.options import WorkerOptions, embedded_options, worker_options

SEEDS = {
    "WORKER_TICK_RUNNERS": "(unset)",
    "WORKER_TICK_OVERALL_MAX_MS": "480000",
    "WORKER_TICK_RUNNER_MAX_MS": "60000",
    "WORKER_TICK_RUNNER_MAX_ITEMS": "200",
    "WORKER_TICK_SHARD_INDEX": "(unset)",
    "WORKER_TICK_SHARD_COUNT": "(unset)",
    "WORKER_BUSY_LOOP_DELAY_MS": "250",
    "WORKER_IDLE_BACKOFF_MIN_MS": "1000",
    "WORKER_IDLE_BACKOFF_MAX_MS": "30000",
    "WORKER_IDLE_BACKOFF_JITTER_MS": "500",
    "WORKER_TICK_LOOP_ERROR_BACKOFF_MS": "30000",
    "WORKER_TICK_LOOP_MAX_JITTER_MS": "2000",
    "WORKER_SHUTDOWN_TIMEOUT_MS": "30000",
    "WORKER_API_BASE_URL": "(unset)",
    "WORKER_API_SERVICE_TOKEN": "(unset)",
    "OUTBOX_BATCH_SIZE": "(unset)",
    "OUTBOX_CONCURRENCY": "10",
    "OUTBOX_LEASE_DURATION_MS": "60000",
    "OUTBOX_LEASE_HEARTBEAT_MS": "15000",
    "OUTBOX_REAPER_INTERVAL_MS": "10000",
    "OUTBOX_MAX_ATTEMPTS": "3",
    "OUTBOX_RETRY_BASE_MS": "5000",
    "OUTBOX_RETRY_MAX_MS": "120000",
    "OUTBOX_RETRY_JITTER_MS": "500",
    "OUTBOX_WORKER_ENABLED": "false",
    "OUTBOX_WORKER_POLL_MS": "1000",
    "OUTBOX_WORKER_BATCH_SIZE": "(unset)",
    "OUTBOX_WORKER_MAX_ATTEMPTS": "3",
    "OUTBOX_WORKER_PROCESSING_TIMEOUT_MS": "60000",
    "OUTBOX_WORKER_RETRY_BASE_MS": "5000",
    "OUTBOX_WORKER_RETRY_MAX_MS": "120000",
}


@pytest.mark.parametrize(("name", "default"), SEEDS.items())
def test_every_variable_of_the_seeds_has_its_default(name: str, default: str) -> None:
    shown = {each.name: (each.value, each.origin) for each in effective(read_settings({}))}
    assert shown[name] == (default, "default")


def test_no_two_variables_share_a_name_and_each_says_what_it_is() -> None:
    variables = [each for group in GROUPS.values() for each in variables_of(group)]
    assert len({each.name for each in variables}) == len(variables)
    assert all(each.text.endswith(".") for each in variables)


def test_secrets_are_masked_and_passwords_cut_out_of_urls() -> None:
    settings = read_settings(
        {
            "HOLDFAST_URL": "postgresql://ana:hunter2@db/shop",
            "HOLDFAST_NOTIFIER": "redis://:hunter2@cache/0",
            "WORKER_API_SERVICE_TOKEN": "hunter2 and hunter3",
        }
    )
    text = " ".join(f"{each.name}={each.value}" for each in effective(settings))
    assert "hunter2" not in text
    assert "HOLDFAST_URL=postgresql://ana:•••@db/shop" in text
    assert "WORKER_API_SERVICE_TOKEN=•••" in text


def test_the_embedded_worker_falls_back_to_the_dedicated_workers_settings() -> None:
    settings = read_settings({"OUTBOX_BATCH_SIZE": "7", "OUTBOX_WORKER_MAX_ATTEMPTS": "9"})
    assert settings.embedded.batch_size == 7
    assert settings.origin("OUTBOX_WORKER_BATCH_SIZE") == "env: OUTBOX_BATCH_SIZE"
    assert not settings.is_set("OUTBOX_WORKER_BATCH_SIZE")
    assert settings.embedded.max_attempts == 9
    assert settings.outbox.max_attempts == 3


def test_the_defaults_are_those_of_the_code() -> None:
    settings = read_settings({})
    assert worker_options(settings) == WorkerOptions()
    assert event_retry(settings) == EVENT_RETRY
    assert job_retry(settings) == JOB_RETRY


def test_a_worker_gets_only_the_timings_that_somebody_set() -> None:
    options = worker_options(
        read_settings({"OUTBOX_LEASE_HEARTBEAT_MS": "4000", "HOLDFAST_SLOTS": "3"})
    )
    assert options.heartbeat_ms == 4_000
    assert options.shutdown_ms is None
    assert options.slots == 3


def test_the_embedded_worker_has_options_of_its_own() -> None:
    environ = {
        "OUTBOX_WORKER_POLL_MS": "2000",
        "OUTBOX_WORKER_PROCESSING_TIMEOUT_MS": "30000",
        "OUTBOX_WORKER_RETRY_BASE_MS": "100",
    }
    settings = read_settings(environ)
    options = embedded_options(settings)
    assert options.idle_min_ms == 2_000
    assert options.lease.duration_ms == 30_000
    assert event_retry(settings, embedded=True).base_ms == 100
