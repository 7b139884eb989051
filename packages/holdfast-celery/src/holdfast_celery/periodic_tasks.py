"""django-celery-beat's periodic tasks, as Django's `dumpdata` writes them, set as schedules at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from holdfast.core.errors import CommandUsage, HoldfastError, MissingExtra
from holdfast_celery.calls import TaskStep, input_of
from holdfast_celery.canvas import TaskSignature
from holdfast_celery.coverage import refuse
from holdfast_celery.errors import CeleryUnsupported
from holdfast_celery.queues import type_name
from holdfast_celery.schedules import crontab
from holdfast_celery.scope import using_transaction

try:
    from holdfast_schedules.schedule_plan import make_schedule, make_times
    from holdfast_schedules.schedules import Schedules, declared_schedules
except ImportError as error:
    raise MissingExtra(
        "schedules at run time are not installed",
        help='pip install "holdfast-jobs[celery,schedules]"',
    ) from error

if TYPE_CHECKING:
    from holdfast_celery.application import Celery

_APP = "django_celery_beat"
_CRONTAB = ("minute", "hour", "day_of_week", "day_of_month", "month_of_year")
_CLEANUP = "celery.backend_cleanup"

ImportResult: TypeAlias = Literal["set", "paused", "started", "not needed", "left"]
Write: TypeAlias = Callable[[Schedules, Any], object]
_Known: TypeAlias = Mapping[tuple[str, Any], Mapping[str, Any]]


class DumpedRow(msgspec.Struct, frozen=True):
    """One row of a dump."""

    model: str
    pk: Any
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """What becomes of a periodic task: its schedule is set or paused, its only run started, or it is left out.

    text: when it is due; of one that is left out, why, or what to write instead.
    """

    name: str
    task: str
    outcome: ImportResult
    text: str
    write: Write | None = None


def read_dump(text: str | bytes) -> list[DumpedRow]:
    """Read what `manage.py dumpdata django_celery_beat` writes. Raises: CommandUsage."""
    try:
        return msgspec.json.decode(text, type=list[DumpedRow])
    except msgspec.MsgspecError as error:
        raise CommandUsage(
            f"this is not what dumpdata writes: {error}",
            help=f"run `python manage.py dumpdata {_APP} > beat.json`",
        ) from error


def schedules_of(app: Celery) -> Schedules:
    """Return the schedules of an application. Raises: CommandUsage if its workers start none."""
    found = declared_schedules(app)
    if found is None:
        raise CommandUsage(
            "this application has no schedules at run time, so its workers would start none",
            help="write add_schedules(app) next to app = Celery(…), from holdfast_schedules",
        )
    return found


def plan_schedules(app: Celery, rows: Sequence[DumpedRow], now: datetime) -> list[PeriodicTask]:
    """Return what becomes of each periodic task of a dump, by name; nothing is written."""
    known = {(each.model.removeprefix(f"{_APP}."), each.pk): each.fields for each in rows}
    tasks = [each for each in rows if each.model == f"{_APP}.periodictask"]
    return [_plan(app, each, known, now) for each in sorted(tasks, key=_name)]


def write_schedules(app: Celery, schedules: Schedules, tasks: Sequence[PeriodicTask]) -> None:
    """Set all in one transaction; a schedule of the same name is changed. Raises: errors of the database."""
    with app.transaction() as tx:
        for each in tasks:
            if each.write is not None:
                each.write(schedules, tx)


def _name(row: DumpedRow) -> str:
    return str(row.fields.get("name"))


def _plan(app: Celery, row: DumpedRow, known: _Known, now: datetime) -> PeriodicTask:
    fields, name, task = row.fields, _name(row), str(row.fields.get("task"))
    try:
        reason = _not_needed(fields, known, now)
        if reason is not None:
            return PeriodicTask(name, task, "not needed", reason)
        _check_covered(fields, now)
        signature = _signature_of(app, fields)
        if fields.get("clocked") is not None:
            text = known["clockedschedule", fields["clocked"]]["clocked_time"]
            signature.set(eta=_time(text), task_id=f"{_APP}:{row.pk}:{text}")
            signature.steps(app)
            return PeriodicTask(
                name, task, "started", f"at {text}", partial(_start, app, signature)
            )
        return _make_schedule(app, name, signature, _times_of(fields, known), fields["enabled"])
    except HoldfastError as error:
        text = f"{error.message}: {error.help}" if error.help else error.message
    except (KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
        text = f"its row cannot be read: {error!r}"
    return PeriodicTask(name, task, "left", text)


def _not_needed(fields: Mapping[str, Any], known: _Known, now: datetime) -> str | None:
    """Return why a task has nothing more to do, None for one that has."""
    if fields["task"] == _CLEANUP:
        return "results are kept with their jobs, for HOLDFAST_RETENTION_DAYS"
    if fields.get("expires") and _time(fields["expires"]) <= now:
        return "it has expired"
    runs_once = fields.get("one_off") or fields.get("clocked") is not None
    if runs_once and (not fields["enabled"] or fields.get("total_run_count")):
        return "it runs once, and has run or was switched off"
    if fields.get("clocked") is not None:
        text = known["clockedschedule", fields["clocked"]]["clocked_time"]
        return "its time has passed" if _time(text) <= now else None
    return None


def _check_covered(fields: Mapping[str, Any], now: datetime) -> None:
    """Refuse what a schedule does not have. Raises: CeleryUnsupported."""
    if fields.get("solar") is not None:
        raise refuse("import", "solar")
    for name in ("exchange", "routing_key"):
        if fields.get(name):
            raise refuse("call option", name)
    if fields.get("one_off") and fields.get("clocked") is None:
        raise CeleryUnsupported("it runs once", help="start the task with eta= or countdown=")
    if fields.get("start_time") and _time(fields["start_time"]) > now:
        raise CeleryUnsupported(
            f"it begins at {fields['start_time']}",
            help="import it then, or set its schedule in a task that is started with that eta",
        )


def _signature_of(app: Celery, fields: Mapping[str, Any]) -> TaskSignature:
    """Return what a periodic task calls. Raises: CeleryUnsupported, InvalidOption, ValueError."""
    options = {
        "queue": fields.get("queue") or None,
        "priority": fields.get("priority"),
        "expires": fields.get("expire_seconds"),
        "headers": _decode(fields.get("headers"), dict[str, Any]) or None,
    }
    if fields.get("expires"):
        options["expires"] = _time(fields["expires"])
    given = {name: value for name, value in options.items() if value is not None}
    args, kwargs = (
        _decode(fields.get("args"), list[Any]),
        _decode(fields.get("kwargs"), dict[str, Any]),
    )
    return app.signature(str(fields["task"]), args, kwargs).set(**given)


def _times_of(fields: Mapping[str, Any], known: _Known) -> dict[str, Any]:
    """Return when a periodic task is due, as options of `schedules.set`. Raises: CeleryUnsupported, KeyError."""
    if fields.get("interval") is not None:
        interval = known["intervalschedule", fields["interval"]]
        return {"every": timedelta(**{interval["period"]: interval["every"]})}
    row = known["crontabschedule", fields["crontab"]]
    cron = crontab(**{name: row[name] for name in _CRONTAB}).expression
    return {"cron": cron, "timezone": str(row.get("timezone") or "UTC")}


def _make_schedule(
    app: Celery, name: str, signature: TaskSignature, times: dict[str, Any], enabled: bool
) -> PeriodicTask:
    """Return the schedule of a task, once all that setting it could refuse is checked. Raises: as `schedules.set`."""
    (step,) = signature.steps(app)
    assert isinstance(step, TaskStep)
    target, call = type_name(step.task, step.options.queue), input_of(step, (), ())
    more: dict[str, Any] = {}
    if step.options.priority is not None:
        more["priority"] = step.options.priority
    due = make_times(times.get("every"), times.get("cron"), times.get("timezone"))
    make_schedule(app.targets, name, target, call, due, {**more})  # type: ignore[typeddict-item]

    def write(schedules: Schedules, tx: Any) -> None:
        schedules.set(tx, name, target, call, **times, **more)
        if not enabled:
            schedules.pause(tx, name, _APP)

    return PeriodicTask(name, step.task, "set" if enabled else "paused", due.describe(), write)


def _start(app: Celery, signature: TaskSignature, schedules: Schedules, tx: Any) -> None:
    with using_transaction(app, tx):
        signature.apply_async()


def _decode(text: Any, kind: Any) -> Any:
    """Return the JSON in a text field. Raises: ValueError."""
    return msgspec.json.decode(text or msgspec.json.encode(kind()), type=kind)


def _time(text: str) -> datetime:
    """Return a time of a dump. Raises: ValueError for one without a zone."""
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return found
