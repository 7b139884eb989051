"""Schedules of django-celery-beat, from what `dumpdata` writes to schedules at run time that start the same tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast_celery import Celery
from holdfast_celery.periodic_tasks import (
    PeriodicTask,
    plan_schedules,
    read_dump,
    schedules_of,
    write_schedules,
)
from holdfast_schedules import add_schedules
from holdfast_testing.kit import Kit
from tests.cli.conftest import Run
from tests.cli.conftest import own_modules as own_modules
from tests.cli.conftest import run as run
from tests.contrib.conftest import any_url as any_url

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)

TIMES: list[dict[str, Any]] = [
    {"model": "intervalschedule", "pk": 1, "fields": {"every": 10, "period": "minutes"}},
    {"model": "intervalschedule", "pk": 2, "fields": {"every": 5, "period": "microseconds"}},
    {
        "model": "crontabschedule",
        "pk": 1,
        "fields": {
            "minute": "30",
            "hour": "22-2",
            "day_of_week": "mon-fri",
            "day_of_month": "*",
            "month_of_year": "*",
            "timezone": "Europe/Warsaw",
        },
    },
    {
        "model": "crontabschedule",
        "pk": 2,
        "fields": {
            "minute": "0",
            "hour": "0",
            "day_of_week": "1",
            "day_of_month": "1",
            "month_of_year": "*",
            "timezone": "UTC",
        },
    },
    {
        "model": "solarschedule",
        "pk": 1,
        "fields": {"event": "sunset", "latitude": "-37.8", "longitude": "144.9"},
    },
    {"model": "clockedschedule", "pk": 1, "fields": {"clocked_time": "2026-11-18T18:00:00Z"}},
    {"model": "clockedschedule", "pk": 2, "fields": {"clocked_time": "2026-11-18T06:00:00Z"}},
    {"model": "periodictasks", "pk": 1, "fields": {"last_update": "2026-11-18T06:00:00Z"}},
]


def dumped(*tasks: dict[str, Any]) -> str:
    """What dumpdata writes of these periodic tasks, with the fields that each of them has."""
    fields = {
        **dict.fromkeys(("interval", "crontab", "solar", "clocked", "queue", "exchange")),
        **dict.fromkeys(("routing_key", "priority", "expires", "expire_seconds", "start_time")),
        **dict.fromkeys(("last_run_at",)),
        "args": "[]",
        "kwargs": "{}",
        "headers": "{}",
        "one_off": False,
        "enabled": True,
        "total_run_count": 0,
        "date_changed": "2026-11-01T06:00:00Z",
        "description": "",
    }
    rows = [
        {"model": "periodictask", "pk": place, "fields": {**fields, "task": "note", **each}}
        for place, each in enumerate(tasks, 1)
    ]
    return json.dumps(
        [{**each, "model": f"django_celery_beat.{each['model']}"} for each in [*TIMES, *rows]]
    )


@pytest.fixture
def app(any_url: str) -> Iterator[Celery]:
    """An application with schedules at run time, on each store."""
    with closing(Celery("shop", url=any_url)) as made:
        made.conf.task_queues = ["mail"]
        add_schedules(made)
        made.migrate()
        yield made


@pytest.fixture
def seen(app: Celery) -> list[Any]:
    """What its task was given."""
    found: list[Any] = []

    @app.task(name="note", bind=True)
    def note(self: Any, *args: Any, **kwargs: Any) -> None:
        found.append((args, kwargs, self.request.headers))

    return found


def import_tasks(app: Celery, *tasks: dict[str, Any]) -> dict[str, PeriodicTask]:
    """Set these periodic tasks, and return what became of each by its name."""
    planned = plan_schedules(app, read_dump(dumped(*tasks)), NOW)
    write_schedules(app, schedules_of(app), planned)
    return {each.name: each for each in planned}


def test_a_periodic_task_becomes_a_schedule_that_starts_its_task(
    app: Celery, seen: list[Any], any_url: str
) -> None:
    given = {"args": '[1, "a"]', "kwargs": '{"b": 2}', "headers": '{"source": "beat"}'}
    with closing(Kit(app, any_url)) as kit:
        found = import_tasks(app, {"name": "Every ten minutes*", "interval": 1, **given})
        schedule = add_schedules(app).get("Every ten minutes*")
        assert (schedule.schedule, schedule.type) == ("every 10m", "note")
        kit.advance("10m")
        kit.run_until_idle()
        assert seen == [((1, "a"), {"b": 2}, {"source": "beat"})]
    assert found["Every ten minutes*"].text == "every 10 minutes"


def test_a_crontab_keeps_its_zone_and_its_hours_past_midnight(app: Celery, seen: list[Any]) -> None:
    import_tasks(app, {"name": "nights", "crontab": 1})
    found = add_schedules(app).get("nights")
    assert (found.schedule, found.zone) == ("30 22-23,0-2 * * MON-FRI", "Europe/Warsaw")


def test_queue_priority_and_expiry_are_kept(app: Celery, seen: list[Any]) -> None:
    import_tasks(
        app, {"name": "x", "interval": 1, "queue": "mail", "priority": 2, "expire_seconds": 60}
    )
    found = add_schedules(app).get("x")
    assert (found.type, found.priority, found.input["expires_ms"]) == ("mail:note", 2, 60_000)


def test_a_task_that_is_switched_off_becomes_a_paused_schedule(
    app: Celery, seen: list[Any]
) -> None:
    found = import_tasks(app, {"name": "off", "interval": 1, "enabled": False})
    schedule = add_schedules(app).get("off")
    assert (schedule.paused, schedule.paused_by) == (True, "django_celery_beat")
    assert found["off"].outcome == "paused"


def test_a_clocked_task_is_started_once_at_its_time(app: Celery, seen: list[Any]) -> None:
    task = {"name": "tonight", "clocked": 1, "one_off": True, "args": "[7]"}
    for _ in range(2):
        assert import_tasks(app, task)["tonight"].outcome == "started"
    (job,) = app.jobs.list()
    assert (job.type, job.input["args"]) == ("note", [7])
    assert job.planned_at == datetime(2026, 11, 18, 18, tzinfo=UTC)
    assert add_schedules(app).list() == []


def test_importing_again_changes_what_is_different(app: Celery, seen: list[Any]) -> None:
    import_tasks(app, {"name": "a", "interval": 1})
    before = add_schedules(app).get("a").changed_at
    import_tasks(app, {"name": "a", "interval": 1})
    assert add_schedules(app).get("a").changed_at == before
    import_tasks(app, {"name": "a", "crontab": 1})
    assert add_schedules(app).get("a").zone == "Europe/Warsaw"


LEFT: dict[str, tuple[dict[str, Any], str]] = {
    "solar": ({"solar": 1}, "there are no solar schedules"),
    "too often": ({"interval": 2}, "too short"),
    "both kinds of days": ({"crontab": 2}, "day_of_week and day_of_month"),
    "no such task": ({"interval": 1, "task": "gone"}, "gone"),
    "no such queue": ({"interval": 1, "queue": "pdf"}, "task_queues"),
    "an exchange": ({"interval": 1, "exchange": "media"}, "no broker"),
    "once": ({"interval": 1, "one_off": True}, "eta="),
    "not yet": ({"interval": 1, "start_time": "2026-12-01T00:00:00Z"}, "begins at"),
    "no schedule": ({}, "cannot be read"),
    "broken arguments": ({"interval": 1, "args": "[1"}, "cannot be read"),
}


def test_what_has_no_counterpart_is_left_with_what_to_do(app: Celery, seen: list[Any]) -> None:
    found = import_tasks(app, *({"name": name, **each} for name, (each, _) in LEFT.items()))
    assert {name: each.outcome for name, each in found.items()} == dict.fromkeys(LEFT, "left")
    missing = {
        name: found[name].text for name, (_, text) in LEFT.items() if text not in found[name].text
    }
    assert missing == {}
    assert add_schedules(app).list() == []


def test_what_has_nothing_more_to_do_is_passed_over(app: Celery, seen: list[Any]) -> None:
    tasks: dict[str, dict[str, Any]] = {
        "celery.backend_cleanup": {"crontab": 1, "task": "celery.backend_cleanup"},
        "this morning": {"clocked": 2, "one_off": True},
        "has run": {"interval": 1, "one_off": True, "total_run_count": 1},
        "expired": {"interval": 1, "expires": (NOW - timedelta(days=1)).isoformat()},
    }
    found = import_tasks(app, *({"name": name, **each} for name, each in tasks.items()))
    assert {each.outcome for each in found.values()} == {"not needed"}
    assert list(app.jobs.list()) == []


PROGRAM = """
from holdfast_celery import Celery
from holdfast_schedules import add_schedules

app = Celery("beatshop", url={url!r})
add_schedules(app)
bare = Celery("bare", url={url!r})

@app.task(name="note")
def note(*args):
    pass
"""


def test_the_command_sets_what_a_file_or_stdin_has(
    run: Run, any_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beatshop.py").write_text(PROGRAM.format(url=any_url))
    monkeypatch.chdir(tmp_path)
    assert run("migrate", "--app", "beatshop:app").exit_code == 0
    dump = dumped({"name": "a", "interval": 1}, {"name": "b", "solar": 1})
    (tmp_path / "beat.json").write_text(dump)
    words = ("migrate-from", "celery-beat")
    dry = run(*words, "beat.json", "--app", "beatshop:app", "--dry-run")
    assert "a: set, note\n    every 10 minutes\n" in dry.output
    assert "1 set, 1 left" in dry.output
    listed = ("schedules", "list", "--app", "beatshop:app", "-o", "json")
    assert json.loads(run(*listed).stdout) == []
    done = run(*words, "-", "--app", "beatshop:app", "-o", "json", input=dump)
    assert [each["outcome"] for each in json.loads(done.stdout)] == ["set", "left"]
    assert [each["name"] for each in json.loads(run(*listed).stdout)] == ["a"]
    refused = run(*words, "beat.json", "--app", "beatshop:bare")
    assert refused.exit_code == 2
    assert "add_schedules(app)" in refused.output
    (tmp_path / "beat.json").write_text('{"no": "dump"}')
    assert (
        "this is not what dumpdata writes"
        in run(*words, "beat.json", "--app", "beatshop:app").output
    )
