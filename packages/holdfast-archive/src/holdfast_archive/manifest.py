"""Manifests of the archive, what they name, and the periods that they cover."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

import msgspec

from holdfast.core.instants import Instant, to_datetime, to_instant

ManifestState = Literal["pending", "exporting", "exported", "verified", "dropped", "failed"]
PeriodLength = Literal["day", "month"]

JOBS = "jobs"
DEAD_LETTERS = "dead_letters"
"""The sources of Holdfast's own chains: those that completed or were cancelled, and those that failed."""


class ArchivedObject(msgspec.Struct, frozen=True):
    """One file of a manifest: whose rows, where, how many, and the SHA-256 of its content."""

    table: str
    key: str
    rows: int
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What was exported of one period of a source; part 0 first, later parts hold late and changed rows.

    `items` are rows, or chains for Holdfast's own jobs; `dropped` of them are gone from their table.
    """

    id: str
    source: str
    period: str
    part: int
    state: ManifestState
    objects: list[ArchivedObject]
    items: int
    rows: int
    bytes: int
    dropped: int
    definition: str
    token: str | None
    expires_at: Instant | None
    error: str | None
    created_at: Instant
    changed_at: Instant
    exported_at: Instant | None
    verified_at: Instant | None
    drop_eligible_at: Instant | None
    dropped_at: Instant | None
    restored_at: Instant | None

    @property
    def name(self) -> str:
        """The name people use: source/period/part."""
        return f"{self.source}/{self.period}/{self.part}"

    @property
    def is_live(self) -> bool:
        """Whether it covers rows that should still be in their table."""
        return self.state == "verified"


class ManifestTotals(msgspec.Struct, frozen=True):
    """The manifests of a source in one state, together; `errors` of them carry the reason of a failure."""

    source: str
    state: ManifestState
    manifests: int
    items: int
    rows: int
    bytes: int
    errors: int


@dataclass(frozen=True, slots=True)
class Period:
    """A calendar day or month in a time zone; the end is the start of the next one."""

    name: str
    start: datetime
    end: datetime

    @property
    def start_at(self) -> Instant:
        """When it begins."""
        return to_instant(self.start)

    @property
    def end_at(self) -> Instant:
        """When it ends."""
        return to_instant(self.end)


def period_of(instant: Instant, length: PeriodLength, zone: ZoneInfo) -> Period:
    """Return the period that an instant lies in."""
    local = to_datetime(instant).astimezone(zone)
    if length == "day":
        start = datetime(local.year, local.month, local.day, tzinfo=zone)
        # Of one zone, so a day is a day of the calendar, however many hours it has.
        return Period(start.date().isoformat(), start, start + timedelta(days=1))
    start = datetime(local.year, local.month, 1, tzinfo=zone)
    year, month = (local.year + 1, 1) if local.month == 12 else (local.year, local.month + 1)
    end = datetime(year, month, 1, tzinfo=zone)
    return Period(f"{local.year:04}-{local.month:02}", start, end)


def period_named(name: str, zone: ZoneInfo) -> Period:
    """Return the period of a name such as 2026-10 or 2026-10-07. Raises: ValueError."""
    length: PeriodLength = "day" if name.count("-") == 2 else "month"
    numbers = [int(each) for each in name.split("-")]
    start = datetime(*(numbers if length == "day" else [*numbers, 1]), tzinfo=zone)  # type: ignore[arg-type,misc]
    return period_of(to_instant(start), length, zone)
