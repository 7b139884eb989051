"""Celery's schedules as ours: crontab and seconds become the cron expression or interval of a cycle."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
_RANGE = re.compile(r"(\w+)-(\w+)(?:/([1-9]\d*))?")
_WEEK = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_YEAR = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
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
    week, month = _cron_field(day_of_week, 0, 7, _WEEK), _cron_field(day_of_month, 1, 31)
    if week != "*" and month != "*":
        raise CeleryUnsupported(
            "a crontab with both day_of_week and day_of_month is not covered",
            help="keep one of them and check the other at the start of the task",
        )
    year = _cron_field(month_of_year, 1, 12, _YEAR)
    fields = (_cron_field(minute, 0, 60), _cron_field(hour, 0, 24), month, year, week)
    return CrontabSchedule(" ".join(fields))


def _cron_field(value: CronField, low: int, size: int, names: Sequence[str] = ()) -> str:
    """Return a field as cron has it; its values are `size` numbers from `low` on, or names."""
    if isinstance(value, str | int):
        text = str(value)
    else:
        text = ",".join(str(each) for each in sorted(value))
    # Celery knows weekdays and months by their first three letters, however long they are written.
    text = _NAME.sub(lambda found: found[0][:3].upper(), text.replace(" ", ""))
    return ",".join(_without_wrap(each, low, size, names) for each in text.split(","))


def _without_wrap(part: str, low: int, size: int, names: Sequence[str]) -> str:
    """Return a range that goes on from the beginning, such as 22-6, as two: cron has no such range."""
    found = _RANGE.fullmatch(part)
    if found is None or not all(each.isdecimal() or each in names for each in found.group(1, 2)):
        return part
    first, last = (
        names.index(each) + low if each in names else int(each) for each in found.group(1, 2)
    )
    if first < last:
        return part
    if first == last:
        # With a step, cron would take it for a range without an end.
        return found[1]
    step = int(found[3] or 1)
    values = [*range(first, low + size), *range(low, last + 1)][::step]
    before = [each for each in values if each >= first]
    return ",".join(_span(each, step) for each in (before, values[len(before) :]) if each)


def _span(values: Sequence[int], step: int) -> str:
    """Write numbers that are so far apart."""
    if len(values) == 1:
        return str(values[0])
    return f"{values[0]}-{values[-1]}{f'/{step}' if step > 1 else ''}"


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
