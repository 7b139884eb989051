"""Dashboard and alerts speak only of metrics that exist, and every metric is looked at somewhere."""

import json
import re
import shutil
import subprocess
from importlib.resources import as_file, files
from pathlib import Path

import pytest

from holdfast.observe.metrics import METRICS
from tests.support.absent import skip_because_absent

FILES = files("holdfast.observe.grafana")
SUFFIXES = ("_bucket", "_count", "_sum")


def known() -> set[str]:
    return {each.prometheus for each in METRICS}


def named(text: str) -> set[str]:
    found = set(re.findall(r"\bholdfast_[a-z_]+", text))
    for suffix in SUFFIXES:
        found = {name.removesuffix(suffix) for name in found}
    return found


@pytest.mark.parametrize("file", ["dashboard.json", "alerts.yml"])
def test_a_file_names_only_metrics_that_exist(file: str) -> None:
    used = named((FILES / file).read_text())
    assert used
    assert used <= known()


def test_every_metric_has_a_panel_or_an_alert() -> None:
    used = named((FILES / "dashboard.json").read_text()) | named((FILES / "alerts.yml").read_text())
    assert used == known()


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = json.loads((FILES / "dashboard.json").read_text())["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in panels]
    assert len(set(places)) == len(places)


def test_that_nobody_reaps_is_told_when_no_series_are_left() -> None:
    """Without series a comparison has no result and no alert; each side needs a zero of its own."""
    rules = (FILES / "alerts.yml").read_text()
    _, _, rule = rules.partition("alert: HoldfastNobodyReaps")
    expression, _, _ = rule.partition("for: 5m")
    sides = expression.partition("expr:")[2].split("\n          and ")
    assert len(sides) == 2
    for side in sides:
        assert re.search(r"\((max|sum)\(.*\) or vector\(0\)\) == 0", side)


RULE_TESTS = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    alert_rule_test:
      - {{eval_time: 4m, alertname: HoldfastNobodyReaps}}
      - eval_time: 6m
        alertname: HoldfastNobodyReaps
        exp_alerts: [{nobody}]
  - interval: 1m
    input_series:
      - {{series: 'holdfast_fleet_reaping', values: '1+0x10 _x20'}}
    alert_rule_test:
      - {{eval_time: 10m, alertname: HoldfastNobodyReaps}}
      - eval_time: 30m
        alertname: HoldfastNobodyReaps
        exp_alerts: [{nobody}]
  - interval: 1m
    input_series:
      - {{series: 'holdfast_fleet_reaping', values: '0+0x30'}}
      - {{series: 'holdfast_reaper_runs_total{{worker="w-1"}}', values: '0+6x30'}}
    alert_rule_test:
      - {{eval_time: 30m, alertname: HoldfastNobodyReaps}}
  - interval: 1m
    input_series:
      - {{series: 'holdfast_fleet_reaping', values: '0+0x30'}}
      - {{series: 'holdfast_reaper_runs_total{{worker="w-1"}}', values: '6+0x30'}}
      - {{series: 'holdfast_worker_vanished_total', values: '0+0x10 1+0x20'}}
    alert_rule_test:
      - eval_time: 20m
        alertname: HoldfastNobodyReaps
        exp_alerts: [{nobody}]
      - {{eval_time: 9m, alertname: HoldfastWorkersVanish}}
      - eval_time: 12m
        alertname: HoldfastWorkersVanish
        exp_alerts: [{vanish}]
  - interval: 1m
    input_series:
      - {{series: 'holdfast_database_up{{instance="w-1:9000"}}', values: '1+0x5 0+0x25'}}
      - {{series: 'holdfast_database_up{{instance="w-2:9000"}}', values: '1+0x30'}}
    alert_rule_test:
      - {{eval_time: 5m, alertname: HoldfastDatabaseUnreachable}}
      - eval_time: 8m
        alertname: HoldfastDatabaseUnreachable
        exp_alerts: [{database}]
  - interval: 1m
    input_series:
      - {{series: 'holdfast_database_up{{instance="w-1:9000"}}', values: '0+0x30'}}
    alert_rule_test:
      - {{eval_time: 30m, alertname: HoldfastNobodyReaps}}
  - interval: 1m
    input_series:
      - {{series: 'holdfast_cycle_lateness_seconds{{cycle="nightly"}}', values: '0+0x5 60+60x20'}}
      - {{series: 'holdfast_cycle_lateness_seconds{{cycle="hourly"}}', values: '0+30x8 0+0x20'}}
      - {{series: 'holdfast_job_dead_letters_total{{type="mail"}}', values: '0+0x10 1+0x20'}}
    alert_rule_test:
      - {{eval_time: 10m, alertname: HoldfastCycleLate}}
      - eval_time: 20m
        alertname: HoldfastCycleLate
        exp_alerts: [{late}]
      - eval_time: 12m
        alertname: HoldfastDeadLetters
        exp_alerts: [{dead}]
  - interval: 1m
    input_series:
      - {{series: 'holdfast_stream_lag_seconds{{reader="revenue", line="3"}}', values: '0+0x5 400+0x20 _x60'}}
      - {{series: 'holdfast_stream_lag_seconds{{reader="search", line="1"}}', values: '0+0x90'}}
      - {{series: 'holdfast_stream_parked_total{{reader="search"}}', values: '0+0x10 1+0x80'}}
    alert_rule_test:
      - {{eval_time: 10m, alertname: HoldfastStreamLags}}
      - {{eval_time: 20m, alertname: HoldfastStreamUnread}}
      - eval_time: 15m
        alertname: HoldfastStreamLags
        exp_alerts: [{lags}]
      - eval_time: 12m
        alertname: HoldfastStreamParked
        exp_alerts: [{parked}]
      - eval_time: 60m
        alertname: HoldfastStreamUnread
        exp_alerts: [{unread}]
  - interval: 1m
    input_series:
      - {{series: 'holdfast_stream_lag_seconds{{reader="revenue", line="3"}}', values: '0+0x10 _x2000'}}
      - {{series: 'holdfast_fleet_reaping', values: '1+0x10 _x2000'}}
    alert_rule_test:
      - {{eval_time: 10m, alertname: HoldfastStreamUnread}}
      - eval_time: 22m
        alertname: HoldfastStreamUnread
        exp_alerts: [{unread}]
      - eval_time: 23h
        alertname: HoldfastStreamUnread
        exp_alerts: [{unread}]
      - eval_time: 30h
        alertname: HoldfastNobodyReaps
        exp_alerts: [{nobody}]
  - interval: 1m
    input_series:
      - {{series: 'holdfast_schedule_lag_seconds{{type="report"}}', values: '0+0x5 61+60x20'}}
      - {{series: 'holdfast_schedule_lag_seconds{{type="poll"}}', values: '0+5x8 0+0x20'}}
      - {{series: 'holdfast_schedule_refused_total{{type="poll"}}', values: '0+0x10 1+0x20'}}
    alert_rule_test:
      - {{eval_time: 9m, alertname: HoldfastSchedulesLate}}
      - eval_time: 20m
        alertname: HoldfastSchedulesLate
        exp_alerts: [{schedules_late}]
      - eval_time: 12m
        alertname: HoldfastScheduleRefused
        exp_alerts: [{schedule_refused}]
"""
"""Nothing at all; a fleet that is gone at last; a reaper that counts; one that stopped, and a worker that vanished;
a process that lost the database, and a fleet that did; a late cycle, and the first dead letter of a type; a reader
that falls behind and is then read by nobody, beside one that parks an event; a fleet with a reader of which nothing is
left to scrape; schedules that nobody starts, and one
that cannot be."""


def _expected(rules: str, alert: str, **labels: str) -> str:
    _, _, rule = rules.partition(f"alert: {alert}\n")
    severity = re.search(r"severity: (\w+)", rule)
    texts = re.search(r"summary: (.+)\n +action: (.+)\n", rule)
    assert severity
    assert texts
    summary, action = texts[1].strip('"'), texts[2]
    for name, value in labels.items():
        sign = f"{{{{ $labels.{name} }}}}"
        summary, action = summary.replace(sign, value), action.replace(sign, value)
    expected = {
        "exp_labels": {"severity": severity[1], **labels},
        "exp_annotations": {"summary": summary, "action": action},
    }
    return json.dumps(expected)


def test_the_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        skip_because_absent("promtool", "Debian's package `prometheus` has it")
    with as_file(FILES / "alerts.yml") as rules:
        text = rules.read_text()
        tests = tmp_path / "tests.yml"
        tests.write_text(
            RULE_TESTS.format(
                rules=json.dumps(str(rules)),
                nobody=_expected(text, "HoldfastNobodyReaps"),
                vanish=_expected(text, "HoldfastWorkersVanish"),
                database=_expected(text, "HoldfastDatabaseUnreachable", instance="w-1:9000"),
                late=_expected(text, "HoldfastCycleLate", cycle="nightly"),
                dead=_expected(text, "HoldfastDeadLetters", type="mail"),
                lags=_expected(text, "HoldfastStreamLags", reader="revenue"),
                parked=_expected(text, "HoldfastStreamParked", reader="search"),
                unread=_expected(text, "HoldfastStreamUnread", reader="revenue"),
                schedules_late=_expected(text, "HoldfastSchedulesLate", type="report"),
                schedule_refused=_expected(text, "HoldfastScheduleRefused", type="poll"),
            )
        )
        for words in (("check", "rules", str(rules)), ("test", "rules", str(tests))):
            done = subprocess.run([promtool, *words], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
