"""Gives an application its archive, and cycles that move old rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack

from holdfast.settings import load_some
from holdfast_archive.engine import (
    ARCHIVE_CYCLE,
    ARCHIVE_PERIODS,
    ARCHIVE_TIMEOUT,
    Archive,
    archive_handler,
)
from holdfast_archive.row_moves import MOVE_CRON, MOVE_ROWS, MOVE_TIMEOUT, Moves, mover

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.app.registration import CycleOptions
    from holdfast.core.duration import Duration
    from holdfast_files.files import Files

_ARCHIVE = "archive"
_MOVES = "archive.moves"


def add_archive(
    app: Holdfast, files: Files | str | None = None, **options: Unpack[CycleOptions]
) -> Archive:
    """Archive closed periods of tables and jobs, in a cycle that runs at HOLDFAST_ARCHIVE_CRON.

    files: a file store or its URL; by default HOLDFAST_ARCHIVE. Without either, runs do nothing and say so.
    Say what is archived with `table` and `jobs` of the result.

    Raises: DuplicateCycle, InvalidOption, InvalidSchedule, ConfigError.
    """
    values: dict[str, Any] = load_some(
        ("HOLDFAST_ARCHIVE", "HOLDFAST_ARCHIVE_CRON", "HOLDFAST_DEAD_LETTER_DAYS"), {}
    )
    archive = Archive(
        lambda: app.database,
        values["HOLDFAST_ARCHIVE"] if files is None else files,
        dead_letter_ms=values["HOLDFAST_DEAD_LETTER_DAYS"] * 86_400_000,
        now=app.instant,
        observer=app.observer,
    )
    if options.get("every") is None and options.get("cron") is None:
        options["cron"] = values["HOLDFAST_ARCHIVE_CRON"]
    options.setdefault("timeout", ARCHIVE_TIMEOUT)
    options.setdefault("max_items", ARCHIVE_PERIODS)
    app.cycle(ARCHIVE_CYCLE, **options)(archive_handler(archive))
    app.attached[_ARCHIVE] = archive
    app.leaves_chains = lambda: archive.removes_jobs
    return archive


def declared_archive(app: Holdfast) -> Archive | None:
    """Return the application's archive, if it has one."""
    found: Archive | None = app.attached.get(_ARCHIVE)
    return found


def move_rows(
    app: Holdfast,
    name: str,
    *,
    source: str,
    target: str,
    at: str,
    older_than: Duration,
    where: str = "true",
    batch: int = 1_000,
    unit: Literal["us", "ms", "s"] | None = None,
    **options: Unpack[CycleOptions],
) -> None:
    """Move rows older than a span from a table to another with the same columns, in a cycle of that name.

    at: the column with a row's time, as for `Archive.table`. older_than: a duration, or calendar months and
    years as in "12 months". where: your own condition, as SQL, without user input. batch: rows per
    transaction. Unless you give a schedule it runs daily at 03:17; max_items is the most rows of a run. Called
    again with the same name, the cycle makes one move after the other.

    Raises: InvalidName, InvalidIdentifier, InvalidOption, InvalidDuration, InvalidSchedule, DuplicateCycle,
    ConfigError.
    """
    known: dict[str, Moves] = app.attached.setdefault(_MOVES, {})
    move = mover(lambda: app.database, source, target, at, older_than, where, batch, unit)
    if name in known:
        known[name].add(move, options)
        return
    moves = Moves(options)
    moves.add(move, options)
    if options.get("every") is None and options.get("cron") is None:
        options["cron"] = MOVE_CRON
    options.setdefault("timeout", MOVE_TIMEOUT)
    options.setdefault("max_items", MOVE_ROWS)
    app.cycle(name, **options)(moves.handler())
    known[name] = moves
