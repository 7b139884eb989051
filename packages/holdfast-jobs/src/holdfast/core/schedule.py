"""Schedules of cycles: at an interval, or by a cron expression in an IANA time zone.

Interval slots are the multiples of the interval since the epoch, the same on every replica. Cron
slots are local times: one that a clock change skips happens at the first instant after the gap, one
that it repeats happens at its first occurrence only. Expressions with every hour (`*/15 * * * *`)
follow elapsed time instead, so that a clock change neither pauses nor doubles them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TypeAlias
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from holdfast.core.duration import Duration, format_duration, milliseconds
from holdfast.core.errors import InvalidDuration, InvalidSchedule
from holdfast.core.instants import Instant, to_instant

SHORTEST_INTERVAL_MS = 1_000
MAX_EXPRESSION_LENGTH = 100

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1_000}
_FIRST_WINDOW_US = 3_600_000_000
_WINDOW_GROWTH = 8


@dataclass(frozen=True, slots=True, init=False)
class Interval:
    """Slots at a fixed distance."""

    interval_ms: int

    def __init__(self, interval: Duration) -> None:
        """Take a duration of at least a second."""
        interval_ms = milliseconds(interval)
        if interval_ms < SHORTEST_INTERVAL_MS:
            raise InvalidSchedule(
                f"an interval of {format_duration(interval_ms)} is too short", help="use 1s or more"
            )
        object.__setattr__(self, "interval_ms", interval_ms)

    def next_after(self, instant: Instant) -> Instant:
        """Return the first slot after the instant."""
        step = self.interval_ms * 1000
        return (instant // step + 1) * step

    def latest_between(self, after: Instant, until: Instant, limit: int) -> list[Instant]:
        """Return the last slots of the span in ascending order, `after` excluded and `until` included."""
        slots = range(self.next_after(after), until + 1, self.interval_ms * 1000)
        return list(slots[max(len(slots) - limit, 0) :])

    def describe(self) -> str:
        """Return the schedule in plain words."""
        for unit, size in _UNITS.items():
            count, rest = divmod(self.interval_ms, size)
            if rest == 0:
                return f"every {unit}" if count == 1 else f"every {count} {unit}s"
        return f"every {format_duration(self.interval_ms)}"


@dataclass(frozen=True, slots=True, init=False)
class Cron:
    """Slots by the five fields of cron in a time zone."""

    expression: str
    zone: ZoneInfo
    _every_hour: bool = field(repr=False, compare=False)

    def __init__(self, expression: str, tz: str = "UTC") -> None:
        """Take an expression and the name of a time zone, or raise InvalidSchedule."""
        parsed = _parse_cron(expression)
        object.__setattr__(self, "expression", " ".join(expression.split()))
        object.__setattr__(self, "zone", _zone(tz))
        object.__setattr__(self, "_every_hour", len(parsed.hours) == 24)
        if next(self._slots(0), None) is None:
            raise InvalidSchedule(f"the cron expression {expression!r} never matches")

    def next_after(self, instant: Instant) -> Instant:
        """Return the first slot after the instant."""
        return next(self._slots(instant))

    def latest_between(self, after: Instant, until: Instant, limit: int) -> list[Instant]:
        """Return the last slots of the span in ascending order, `after` excluded and `until` included."""
        # Slots are found forwards only, so growing windows before the end are searched.
        window = _FIRST_WINDOW_US
        while True:
            start = max(after, until - window)
            found = list(takewhile(lambda slot: slot <= until, self._slots(start)))
            if start == after or len(found) >= limit:
                return found[max(len(found) - limit, 0) :]
            window *= _WINDOW_GROWTH

    def describe(self) -> str:
        """Return the schedule in plain words."""
        words = _parse_cron(self.expression).explain()
        return f"{words[:1].lower()}{words[1:]}, {self.zone.key}"

    def _slots(self, after: Instant) -> Iterator[Instant]:
        moment = _EPOCH + timedelta(microseconds=after)
        found = self._by_elapsed_time(moment) if self._every_hour else self._by_local_time(moment)
        last = after
        for each in found:
            slot = to_instant(each)
            # Several local times of a gap fall on its end, and a repeated hour begins in the past.
            if slot > last:
                yield slot
                last = slot

    def _by_elapsed_time(self, moment: datetime) -> Iterator[datetime]:
        minute, _, *days = self.expression.split()
        return CronSim(" ".join([minute, "*", *days]), moment.astimezone(self.zone))

    def _by_local_time(self, moment: datetime) -> Iterator[datetime]:
        local = moment.astimezone(self.zone).replace(tzinfo=None)
        for each in CronSim(self.expression, local):
            yield _first_valid(each, self.zone)


Schedule: TypeAlias = Interval | Cron


def parse_schedule(text: str, tz: str = "UTC") -> Schedule:
    """Read `every 2m` or a cron expression."""
    word, _, rest = text.strip().partition(" ")
    if word.lower() != "every":
        return Cron(text, tz)
    try:
        return Interval(rest)
    except InvalidDuration as error:
        raise InvalidSchedule(error.message) from error


def _parse_cron(expression: str) -> CronSim:
    if len(expression) > MAX_EXPRESSION_LENGTH:
        raise InvalidSchedule(
            f"the cron expression has {len(expression)} characters, the limit is {MAX_EXPRESSION_LENGTH}"
        )
    if len(expression.split()) != 5:
        raise InvalidSchedule(f"the cron expression {expression!r} does not have five fields")
    try:
        return CronSim(expression, _EPOCH)
    except CronSimError as error:
        raise InvalidSchedule(f"the cron expression {expression!r} is invalid: {error}") from error


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidSchedule(
            f"{name[:60]!r} is not a known time zone",
            help='use an IANA name like "America/Santiago" or "UTC"',
        ) from error


def _first_valid(local: datetime, zone: ZoneInfo) -> datetime:
    while True:
        moment = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
        if moment.astimezone(zone).replace(tzinfo=None, fold=0) == local:
            return moment
        local += timedelta(minutes=1)
