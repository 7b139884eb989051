"""Celery's schedules as ours: crontab and seconds become the cron expression or interval of a cycle."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from holdfast.core.duration import milliseconds
from holdfast.core.errors import InvalidSchedule, nearest
from holdfast_celery.coverage import refuse_import
from holdfast_celery.errors import CeleryUnsupported

CronField: TypeAlias = str | int | Iterable[int]
"""One field of a crontab, as Celery takes it."""

_NAME = re.compile(r"[a-z]{3,}", re.IGNORECASE)
_NOT_IN_NAMES = re.compile(r"[^\w.-]+")
_ENTRY_KEYS = ("task", "schedule", "args", "kwargs", "options", "relative")


@dataclass(frozen=True, slots=True)
class CrontabSchedule:
    """A schedule by minute, hour and day, as a cron expression."""

    expression: str


Beat: TypeAlias = CrontabSchedule | float | timedelta
"""When an entry runs: a crontab, a number of seconds, or a timedelta."""


@dataclass(frozen=True, slots=True)
class BeatEntry:
    """One entry of a beat schedule, checked."""

    cycle: str
    task: str
    schedule: Beat
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def crontab(
    minute: CronField = "*",
    hour: CronField = "*",
    day_of_week: CronField = "*",
    day_of_month: CronField = "*",
    month_of_year: CronField = "*",
) -> CrontabSchedule:
    """Make a schedule from Celery's fields.

    Raises: CeleryUnsupported for both a day of the week and one of the month: Celery wants both to match, cron either.
    """
    week, month = _cron_field(day_of_week), _cron_field(day_of_month)
    if week != "*" and month != "*":
        raise CeleryUnsupported(
            "a crontab with both day_of_week and day_of_month is not covered",
            help="keep one of them and check the other at the start of the task",
        )
    fields = (_cron_field(minute), _cron_field(hour), month, _cron_field(month_of_year), week)
    return CrontabSchedule(" ".join(fields))


def _cron_field(value: CronField) -> str:
    if isinstance(value, str | int):
        text = str(value)
    else:
        text = ",".join(str(each) for each in sorted(value))
    # Celery knows weekdays and months by their first three letters, however long they are written.
    return _NAME.sub(lambda found: found[0][:3].upper(), text.replace(" ", ""))


def cycle_timing(schedule: object) -> dict[str, Any]:
    """Return the options of a cycle that runs at these times. Raises: InvalidSchedule, InvalidDuration."""
    if isinstance(schedule, CrontabSchedule):
        return {"cron": schedule.expression}
    if isinstance(schedule, int | float | timedelta) and not isinstance(schedule, bool):
        milliseconds(schedule)
        return {"every": schedule}
    raise InvalidSchedule(
        f"{repr(schedule)[:60]} is not a supported schedule",
        help="use crontab from holdfast_celery, a number of seconds, or a timedelta",
    )


def beat_entry(name: str, entry: Mapping[str, Any]) -> BeatEntry:
    """Check an entry of a beat schedule. Raises: CeleryUnsupported, InvalidSchedule."""
    for key in entry:
        if key not in _ENTRY_KEYS:
            near = nearest(key, _ENTRY_KEYS) or f"there are {', '.join(_ENTRY_KEYS)}"
            raise CeleryUnsupported(f"beat entry {name!r} has an unknown key {key!r}", help=near)
    if "task" not in entry or "schedule" not in entry:
        raise CeleryUnsupported(
            f"beat entry {name!r} needs a task and a schedule",
            help='write {"task": …, "schedule": …}',
        )
    if entry.get("relative"):
        raise CeleryUnsupported(
            f"beat entry {name!r} is relative to the start of beat, and there is no such process",
            help="remove relative: intervals count from the epoch, the same on every replica",
        )
    cycle_timing(entry["schedule"])
    return BeatEntry(
        cycle=cycle_name(name),
        task=str(entry["task"]),
        schedule=entry["schedule"],
        args=tuple(entry.get("args") or ()),
        kwargs=dict(entry.get("kwargs") or {}),
        options=dict(entry.get("options") or {}),
    )


def cycle_name(entry: str) -> str:
    """Return the name of an entry's cycle: its own, with a dash for whatever a name cannot have."""
    return _NOT_IN_NAMES.sub("-", entry).strip("-.")[:100]


def __getattr__(name: str) -> Any:
    """Refuse what else Celery has here, with what to write instead."""
    raise refuse_import(__name__, name)
