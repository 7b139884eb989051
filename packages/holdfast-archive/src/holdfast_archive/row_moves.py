"""Moves old rows of a table to another one, in bounded steps: a row is always in exactly one of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import InvalidDuration, InvalidOption
from holdfast.core.instants import to_datetime
from holdfast.storage.database import Database
from holdfast.storage.operation import run as run_operation
from holdfast.storage.sql_loader import quote, quote_table
from holdfast_archive.errors import ArchiveSourceInvalid
from holdfast_archive.progress import ArchiveRun
from holdfast_archive.sources import tables_of
from holdfast_archive.table_access import RowSelection, TableAccess, Unit

MOVE_CRON = "17 3 * * *"
MOVE_TIMEOUT = "1h"
MOVE_ROWS = 1_000_000
"""Rows of one run, unless the cycle says otherwise."""

_MAX_MONTHS = 100 * 12
_CALENDAR = re.compile(r"\s*(\d{1,4})\s*(months?|years?)\s*", re.ASCII | re.IGNORECASE)


def age_before(older_than: Duration) -> Callable[[datetime], datetime]:
    """Return what gives the moment before which rows are old enough. Raises: InvalidDuration."""
    found = _CALENDAR.fullmatch(older_than) if isinstance(older_than, str) else None
    if found is None:
        span = timedelta(milliseconds=milliseconds(older_than))
        return lambda now: now - span
    months = int(found[1]) * (12 if found[2].lower().startswith("year") else 1)
    if months > _MAX_MONTHS:
        raise InvalidDuration(f"{older_than!r} is more than 100 years")
    return lambda now: _months_before(now, months)


def _months_before(now: datetime, months: int) -> datetime:
    """Return the same day so many months before, or the last day of that month."""
    year, month = divmod(now.year * 12 + now.month - 1 - months, 12)
    for day in range(now.day, 27, -1):
        try:
            return now.replace(year=year, month=month + 1, day=day)
        except ValueError:
            continue
    return now.replace(year=year, month=month + 1, day=min(now.day, 28))


Mover = Callable[[ArchiveRun], None]


class Moves:
    """The moves of one cycle, one after the other; they share its budget of rows."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._movers: list[Mover] = []

    def add(self, mover: Mover, options: Mapping[str, Any]) -> None:
        """Add a move; the options of the cycle are those of its first. Raises: InvalidOption."""
        if options and dict(options) != self._options:
            raise InvalidOption(
                "the moves of a cycle have one schedule",
                help="set the options once, use the same ones each time, or use another name",
            )
        self._movers.append(mover)

    def handler(self) -> Mover:
        """Return the handler of the cycle."""

        def move_rows(run: ArchiveRun) -> None:
            for each in self._movers:
                each(run)

        return move_rows


def mover(
    database: Callable[[], Database],
    source: str,
    target: str,
    at: str,
    older_than: Duration,
    where: str,
    batch: int,
    unit: Unit | None,
) -> Mover:
    """Return what moves rows in a cycle's run. Raises: InvalidIdentifier, InvalidOption, InvalidDuration."""
    quote(at)
    if quote_table(source) == quote_table(target):
        raise InvalidOption("rows cannot be moved to the table they are in")
    if batch < 1:
        raise InvalidOption(f"a batch of {batch} rows moves nothing")
    before = age_before(older_than)
    selection = RowSelection(source, (), at, where, ZoneInfo("UTC"), unit)

    def move(run: ArchiveRun) -> None:
        store, access = database().store, tables_of(database())
        with run.transaction() as tx:
            until = before(to_datetime(run_operation(store.schema.clock(), tx)))
            columns = _common_columns(access, tx.connection, source, target)
        while room := run.room(batch):
            run.checkpoint()
            with run.transaction() as tx:
                moved = access.move(tx.connection, selection, target, columns, until, room)
            for counter in ("moved", f"moved_{source}", "processed"):
                run.count(counter, moved)
            if moved < room:
                return

    return move


def _common_columns(access: TableAccess, connection: Any, source: str, target: str) -> list[str]:
    """Return the columns to move. Raises: ArchiveSourceInvalid when the tables do not have the same ones."""
    own = {each.name: each for each in access.columns(connection, source)}
    others = {each.name: each for each in access.columns(connection, target)}
    for name in [*own, *others]:
        if name not in own or name not in others:
            lacking = target if name not in others else source
            raise ArchiveSourceInvalid(f"{lacking} has no column {name}")
        if own[name].type.lower() != others[name].type.lower():
            raise ArchiveSourceInvalid(
                f"{name} is {own[name].type} in {source} and {others[name].type} in {target}"
            )
    return [
        name
        for name, each in own.items()
        if not others[name].is_generated and not each.is_generated
    ]
