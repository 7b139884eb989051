"""Events as Prometheus metrics."""

import importlib
import sys

import pytest
from docs._ext.reference.events import SEED_NAMES
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.core.errors import MissingExtra
from holdfast.core.statistics import QueueTotals
from holdfast.observe.logging import CATALOGUE
from holdfast.observe.metrics import MEASURED, METRICS, LimitGauges
from holdfast.observe.prometheus import PrometheusObserver
from tests.observe.samples import CANARY, UNMEASURED, all_samples, sample

NAMES = {
    "holdfast_job_attempts_total": ("type", "outcome"),
    "holdfast_job_dead_letters_total": ("type",),
    "holdfast_reaper_recovered_jobs_total": (),
    "holdfast_reaper_stale_duration_seconds": (),
    "holdfast_reaper_runs_total": (),
    "holdfast_queue_depth": ("state",),
    "holdfast_queue_oldest_age_seconds": (),
    "holdfast_job_wait_duration_seconds": ("type",),
    "holdfast_lease_lost_total": (),
    "holdfast_tick_duration_seconds": (),
    "holdfast_cycle_runs_total": ("cycle", "outcome"),
    "holdfast_cycle_duration_seconds": ("cycle",),
    "holdfast_cycle_last_success_time_seconds": ("cycle",),
}

TOTALS = QueueTotals(
    live=10,
    blocked=2,
    running=3,
    due=4,
    oldest_due_at=1_000_000,
    stuck=1,
    completed=100,
    failed=6,
    cancelled=7,
    bounded=False,
)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def observer(registry: CollectorRegistry) -> PrometheusObserver:
    return PrometheusObserver(registry, clock=lambda: 1_700_000_000.0)


def exposed(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


def test_the_documented_names_and_labels_are_kept() -> None:
    ours = {metric.prometheus: metric.labels for metric in METRICS}
    assert ours.items() >= NAMES.items()


def test_no_label_is_an_id_or_a_text_but_the_workers_own() -> None:
    labels = {label for metric in METRICS for label in metric.labels}
    of_jobs = {"type", "outcome", "state", "kind", "worker"}
    assert labels == of_jobs | {"cycle", "counter", "source", "reader", "line", "inbox", "code"}
    assert [each.name for each in METRICS if "worker" in each.labels] == ["holdfast.worker.running"]


def test_no_id_and_no_text_of_an_event_appears(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    for each in all_samples():
        observer.observe(each)
    assert CANARY not in exposed(registry)


@pytest.mark.parametrize("name", sorted(MEASURED))
def test_a_handled_event_changes_something(
    name: str, observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    if name == "worker_stopped":
        observer.observe(sample("worker_started"))
    before = exposed(registry)
    observer.observe(sample(name))
    assert exposed(registry) != before


def test_workers_that_have_stopped_leave_no_series_behind(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    for number in range(3):
        observer.observe(sample("worker_started", worker=f"w-{number}"))
        if number < 2:
            observer.observe(sample("worker_stopped", worker=f"w-{number}"))
    lines = [each for each in exposed(registry).splitlines() if "worker_running{" in each]
    assert lines == ['holdfast_worker_running{worker="w-2"} 1.0']


@pytest.mark.parametrize("name", sorted(UNMEASURED))
def test_an_ignored_event_changes_nothing(
    name: str, observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    before = exposed(registry)
    observer.observe(sample(name))
    assert exposed(registry) == before


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("job_completed", "completed"),
        ("job_continued", "continued"),
        ("job_retried", "retried"),
        ("job_snoozed", "snoozed"),
        ("job_failed", "failed"),
        ("job_cancelled", "cancelled"),
        ("job_reaped", "reaped"),
    ],
)
def test_an_attempt_is_counted_by_its_outcome(
    name: str, outcome: str, observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    observer.observe(sample(name))
    labels = {"type": "mail", "outcome": outcome}
    assert registry.get_sample_value("holdfast_job_attempts_total", labels) == 1


def test_a_job_cancelled_while_it_waited_is_no_attempt(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    observer.observe(sample("job_cancelled", worker=None))
    labels = {"type": "mail", "outcome": "cancelled"}
    assert registry.get_sample_value("holdfast_job_attempts_total", labels) is None


def test_dead_letters_are_counted_whoever_made_them(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    observer.observe(sample("job_failed"))
    observer.observe(sample("job_reaped", state="failed"))
    observer.observe(sample("job_reaped", state="pending"))
    value = registry.get_sample_value("holdfast_job_dead_letters_total", {"type": "mail"})
    assert value == 2


def test_the_reaper_is_measured(observer: PrometheusObserver, registry: CollectorRegistry) -> None:
    observer.observe(sample("reaper_ran", recovered=3))
    observer.observe(sample("reaper_ran", recovered=0))
    observer.observe(sample("job_reaped", stale_ms=2_500))
    assert registry.get_sample_value("holdfast_reaper_runs_total") == 2
    assert registry.get_sample_value("holdfast_reaper_recovered_jobs_total") == 3
    assert registry.get_sample_value("holdfast_reaper_stale_duration_seconds_sum") == 2.5


def test_durations_are_in_seconds(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    observer.observe(sample("job_started", wait_ms=250))
    observer.observe(sample("job_completed", run_ms=400))
    observer.observe(sample("job_failed", run_ms=100))
    observer.observe(sample("tick_finished", duration_ms=1_500, processed=7))
    waited = registry.get_sample_value("holdfast_job_wait_duration_seconds_sum", {"type": "mail"})
    assert waited == 0.25
    ran = registry.get_sample_value("holdfast_job_run_duration_seconds_sum", {"type": "mail"})
    assert ran == 0.5
    assert registry.get_sample_value("holdfast_tick_duration_seconds_sum") == 1.5
    assert registry.get_sample_value("holdfast_tick_processed_jobs_total") == 7


def test_only_a_completed_run_of_a_cycle_is_a_success(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    name, labels = "holdfast_cycle_last_success_time_seconds", {"cycle": "cleanup"}
    observer.observe(sample("cycle_finished", outcome="failed"))
    assert registry.get_sample_value(name, labels) is None
    observer.observe(sample("cycle_finished", outcome="completed"))
    assert registry.get_sample_value(name, labels) == 1_700_000_000


def test_the_counters_of_a_cycle_are_series_of_one_metric(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    name = "holdfast_cycle_items_total"
    observer.observe(sample("cycle_finished"))
    observer.observe(sample("cycle_finished", counters={"sent": 2, "balance": -5}))
    assert registry.get_sample_value(name, {"cycle": "cleanup", "counter": "sent"}) == 5
    assert registry.get_sample_value(name, {"cycle": "cleanup", "counter": "processed"}) == 7
    assert registry.get_sample_value(name, {"cycle": "cleanup", "counter": "balance"}) is None


def test_a_cycle_that_keeps_naming_counters_gets_no_series_without_end(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    for run in range(100):
        observer.observe(sample("cycle_finished", counters={f"tenant-{run}": 1}))
    samples = [
        each
        for metric in registry.collect()
        for each in metric.samples
        if each.name == "holdfast_cycle_items_total"
    ]
    assert len(samples) == 41
    assert {each.labels["counter"]: each.value for each in samples}["other"] == 60


def test_an_event_with_few_fields_disturbs_nothing(observer: PrometheusObserver) -> None:
    for name in MEASURED:
        observer.observe(CATALOGUE[name]())


def test_limits_are_told_by_type_and_end_with_them(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    names = ("full_keys", "waiting_jobs", "oldest_age_seconds")
    observer.set_limits([LimitGauges("mail", 1, 2, 3_500_000)])
    for values in ([1, 2, 3.5], [0, 0, 0]):
        told = [
            registry.get_sample_value(f"holdfast_limit_{name}", {"type": "mail"}) for name in names
        ]
        assert told == values
        observer.set_limits([])


def test_totals_of_the_database_appear_only_where_they_are_set(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    age = "holdfast_queue_oldest_age_seconds"
    assert registry.get_sample_value(age) is None
    observer.set_totals(TOTALS, now=4_500_000)
    assert registry.get_sample_value(age) == 3.5
    assert registry.get_sample_value("holdfast_queue_due_jobs") == 4
    depth = {
        state: registry.get_sample_value("holdfast_queue_depth", {"state": state})
        for state in ("blocked", "pending", "running", "completed", "failed", "cancelled")
    }
    assert depth == {
        "blocked": 2,
        "pending": 5,
        "running": 3,
        "completed": 100,
        "failed": 6,
        "cancelled": 7,
    }


def test_every_name_of_the_seeds_is_told_by_a_metric_that_exists(
    observer: PrometheusObserver, registry: CollectorRegistry
) -> None:
    for each in all_samples():
        observer.observe(each)
    families = text_string_to_metric_families(exposed(registry))
    samples = {sample.name for family in families for sample in family.samples}
    assert {each.seed for each in SEED_NAMES} == {
        "reaper.recovered.count",
        "reaper.stale.duration",
        "reaper.runs.total",
        "ticks_total",
        "processed_total",
        "retried_total",
        "dead_letter_total",
        "recovered_stuck_total",
    }
    for known in SEED_NAMES:
        name = known.query.partition("{")[0]
        assert {name, f"{name}_count"} & samples, known.seed


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "holdfast.observe.prometheus")
    with pytest.raises(MissingExtra, match=r'pip install "holdfast-jobs\[prometheus\]"'):
        importlib.import_module("holdfast.observe.prometheus")
