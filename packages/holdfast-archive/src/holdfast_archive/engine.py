"""The archive of an application: what is archived, and everything that can be done with it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import Aborted, InvalidCursor, InvalidOption
from holdfast.core.events import EventSpec, Observer
from holdfast.storage.database import Database
from holdfast.storage.sql_loader import quote, quote_table
from holdfast_archive.errors import (
    ArchiveBusy,
    ArchiveCorrupted,
    ArchiveIncomplete,
    ArchiveNotConfigured,
    ManifestNotFound,
)
from holdfast_archive.events import (
    ARCHIVE_DROPPED,
    ARCHIVE_EXPORTED,
    ARCHIVE_FAILED,
    ARCHIVE_RESTORED,
)
from holdfast_archive.manifest import (
    DEAD_LETTERS,
    JOBS,
    Manifest,
    ManifestState,
    Period,
    PeriodLength,
    period_of,
)
from holdfast_archive.manifest_store import MANIFESTS
from holdfast_archive.progress import (
    ArchiveReport,
    ArchiveRun,
    Now,
    OnProgress,
    Restored,
    ignore_progress,
    never,
)
from holdfast_archive.sources import (
    EARLIEST,
    ChainSource,
    Source,
    TableSource,
    closed_until,
    tables_of,
)
from holdfast_archive.table_access import RowSelection, Unit
from holdfast_files.file_stores import open_files
from holdfast_files.files import Files

if TYPE_CHECKING:
    from holdfast_archive.work import Work

LEASE_MS = 60_000
DEFAULT_GRACE = "1h"
"""How long after its end a period is left alone, for transactions that commit late."""

ARCHIVE_CYCLE = "archiveExport"
ARCHIVE_TIMEOUT = "4h"
"""Much longer than other cycles: the first run may have years to export."""

ARCHIVE_PERIODS = 10_000
"""Periods of one run, unless the cycle says otherwise: years of days."""

NOT_CONFIGURED = "HOLDFAST_ARCHIVE is not set: nothing is archived, and nothing is dropped"

_log = logging.getLogger("holdfast.archive")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_PART = re.compile(r"[0-9]{1,9}")
_MANY = 10_000


class Archive:
    """Exports closed periods of tables to files, drops what is safe there, and brings it back.

    Threads may share it. Nothing is opened before it is used.
    """

    def __init__(
        self,
        database: Callable[[], Database],
        files: Files | str | None = None,
        *,
        dead_letter_ms: int = 0,
        lease: Duration = LEASE_MS / 1000,
        now: Now = lambda: None,
        observer: Callable[[], Observer | None] = lambda: None,
    ) -> None:
        """Use `add_archive(app)` instead, unless all you have is a database and the URL of the files."""
        self._database = database
        self._given = files
        self._dead_letter_ms = dead_letter_ms
        self._lease_ms = milliseconds(lease)
        self._now = now
        self._observer = observer
        self._sources: dict[str, Source] = {}
        self._has_said = False

    @property
    def is_configured(self) -> bool:
        """Whether there is a file store; without one a run does nothing and says so."""
        return self._given is not None

    @property
    def sources(self) -> Mapping[str, Source]:
        """What is archived, by name."""
        return self._sources

    @property
    def removes_jobs(self) -> bool:
        """Whether the archive, and not retention, removes ended chains."""
        return self.is_configured and JOBS in self._sources

    @cached_property
    def files(self) -> Files:
        """The file store. Raises: ArchiveNotConfigured."""
        if self._given is None:
            raise ArchiveNotConfigured("no file store is set for the archive")
        return open_files(self._given) if isinstance(self._given, str) else self._given

    def table(
        self,
        table: str,
        *,
        key: str | tuple[str, ...],
        at: str,
        period: PeriodLength = "month",
        zone: str = "UTC",
        grace: Duration = DEFAULT_GRACE,
        keep: Duration | None = "30d",
        where: str = "true",
        unit: Unit | None = None,
        name: str | None = None,
    ) -> None:
        """Archive a table, or a partitioned one, by the days or months of the column `at`.

        key: the primary key. keep: how long rows stay after they are verified; None: forever. where: your own
        condition, as SQL, which must not contain user input. unit: the unit of a numeric `at`, microseconds by default;
        text is a time in UTC. name: the table's by default.

        Raises: InvalidOption, InvalidIdentifier, InvalidDuration.
        """
        keys = (key,) if isinstance(key, str) else tuple(key)
        quote_table(table)
        for each in (*keys, at):
            quote(each)
        selection = RowSelection(table, keys, at, where, _zone(zone), unit)
        keep_ms = None if keep is None else milliseconds(keep)
        self._add(
            TableSource(name or table, selection, _length(period), milliseconds(grace), keep_ms)
        )

    def jobs(
        self,
        *,
        period: PeriodLength = "day",
        zone: str = "UTC",
        grace: Duration = DEFAULT_GRACE,
        keep: Duration | None = "30d",
    ) -> None:
        """Archive Holdfast's own ended chains; retention then leaves them to the archive.

        Failed chains are a separate source, and stay for at least HOLDFAST_DEAD_LETTER_DAYS.
        """
        length, grace_ms, place = _length(period), milliseconds(grace), _zone(zone)
        keep_ms = None if keep is None else milliseconds(keep)
        longer = None if keep_ms is None else max(keep_ms, self._dead_letter_ms)
        self._add(ChainSource(JOBS, ("completed", "cancelled"), length, place, grace_ms, keep_ms))
        self._add(ChainSource(DEAD_LETTERS, ("failed",), length, place, grace_ms, longer))

    def _add(self, source: Source) -> None:
        if not _NAME.fullmatch(source.name):
            raise InvalidOption(f"{source.name[:60]!r} is not a valid name of a source")
        if source.name in self._sources:
            raise InvalidOption(f"{source.name} is already archived", help="rename one of them")
        self._sources[source.name] = source

    def run(
        self,
        source: str | None = None,
        *,
        limit: int | None = None,
        on_progress: OnProgress = ignore_progress,
        should_stop: Callable[[], bool] = never,
    ) -> ArchiveReport:
        """Drop rows past their keep time, then export every closed period not archived yet, of one source or all.

        A source or period that fails is recorded and left for the next run. `limit` is the most periods to work on.
        Raises: InvalidOption, Aborted, MissingExtra.
        """
        if source is not None and source not in self._sources:
            raise InvalidOption(
                f"{source[:60]!r} is not archived", help=f"use one of {', '.join(self._sources)}"
            )
        report = ArchiveReport(manifests=[], errors=[])
        if not self.is_configured:
            return self._say_nothing(report)
        from holdfast_archive.work import remove_abandoned_folders

        work = self._work(on_progress, should_stop)
        remove_abandoned_folders()
        for each in self._sources.values():
            if source in (None, each.name):
                _Run(work, each, report, limit, self._tell).run()
        return report

    def list(
        self,
        source: str | None = None,
        state: ManifestState | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[Manifest]:
        """Return manifests, the newest period first; `after` is the id of the last one you have.

        Raises: InvalidOption, InvalidCursor.
        """
        if limit < 1:
            raise InvalidOption(f"limit={limit} is not a positive whole number")
        if after is not None and not _ID.fullmatch(after):
            raise InvalidCursor(f"{after[:60]!r} is not the id of a manifest")
        database = self._database()
        return database.read(MANIFESTS.page(source, state, limit, after))

    def show(self, manifest: str) -> Manifest:
        """Return a manifest by its id or by source/period[/part]. Raises: ManifestNotFound."""
        database = self._database()
        if _ID.fullmatch(manifest):
            found = database.read(MANIFESTS.get(manifest))
        else:
            source, _, rest = manifest.partition("/")
            period, _, part = rest.partition("/")
            if (part and not _PART.fullmatch(part)) or not period:
                raise ManifestNotFound(f"{manifest[:80]!r} names no manifest")
            found = database.read(MANIFESTS.find(source, period, int(part or 0)))
        if found is None:
            raise ManifestNotFound(f"there is no manifest {manifest[:80]}")
        return found

    def verify(self, manifest: str, on_progress: OnProgress = ignore_progress) -> Manifest:
        """Read every object of a manifest and compare it with what was stored; return the manifest.

        If an object is wrong, a manifest whose rows are still there becomes failed, and the next run exports it again.
        Raises: ArchiveCorrupted, ManifestNotFound, ArchiveBusy, ArchiveNotConfigured, FilesError.
        """
        found = self.show(manifest)
        work = self._work(on_progress)
        manifests = MANIFESTS
        with work.hold(found, ["exported", "verified", "dropped", "failed"]) as hold:
            is_dropped_in_part = hold.manifest.state == "failed" and hold.manifest.dropped
            try:
                with work.fetch_all(hold):
                    pass
            except BaseException as error:
                self._note_failed_check(work, hold, error)
                raise
            state: ManifestState | None = "verified" if is_dropped_in_part else None
            error_text = None if hold.manifest.state != "failed" or state else hold.manifest.error
            work.give_up(hold, error_text, state)
        return work.database.read(manifests.get(found.id)) or found

    def _note_failed_check(self, work: Work, hold: Any, error: BaseException) -> None:
        from holdfast_archive.exporter import describe

        manifest = hold.manifest
        if not isinstance(error, ArchiveCorrupted):
            work.give_up(hold, manifest.error)
            return
        self._tell(
            ARCHIVE_FAILED, source=manifest.source, manifest=manifest.name, error=error.message
        )
        work.give_up(hold, describe(error), "failed" if manifest.state != "dropped" else None)

    def restore(
        self, manifest: str, *, into: str | None = None, on_progress: OnProgress = ignore_progress
    ) -> Restored:
        """Insert the rows of a manifest that are missing, in one transaction; `into` names another table.

        Identical existing rows are skipped. Restored rows may be dropped again after the source's keep time.
        Raises: RestoreConflict, ArchiveCorrupted, ArchiveSourceInvalid, ManifestNotFound, ArchiveBusy,
        ArchiveNotConfigured, WrongState, FilesError.
        """
        from holdfast_archive.restorer import restore

        found = self.show(manifest)
        restored = restore(self._work(on_progress), found, into)
        self._tell(
            ARCHIVE_RESTORED, source=found.source, manifest=found.name, rows=restored.inserted
        )
        return restored

    def _work(self, on_progress: OnProgress, should_stop: Callable[[], bool] = never) -> Work:
        from holdfast_archive.work import Work

        files, database = self.files, self._database()
        return Work(
            database,
            files,
            tables_of(database),
            self._now,
            self._lease_ms,
            on_progress,
            should_stop,
        )

    def _say_nothing(self, report: ArchiveReport) -> ArchiveReport:
        report.configured, report.note = False, NOT_CONFIGURED
        if not self._has_said:
            self._has_said = True
            _log.warning(NOT_CONFIGURED)
        return report

    def _tell(self, spec: EventSpec, **fields: Any) -> None:
        observer = self._observer()
        if observer is not None:
            observer.observe(spec(**fields))


class _Run:
    """One source's part of a run."""

    def __init__(
        self,
        work: Work,
        source: Source,
        report: ArchiveReport,
        limit: int | None,
        tell: Callable[..., None],
    ) -> None:
        self._work = work
        self._source = source
        self._report = report
        self._limit = limit
        self._tell = tell

    def run(self) -> None:
        """Drop, then export."""
        self._attempt(self._source.name, self._drop_eligible)
        self._attempt(self._source.name, self._export_closed)

    @property
    def _is_spent(self) -> bool:
        return self._limit is not None and len(self._report.manifests) >= self._limit

    def _attempt(self, name: str, action: Callable[[], None]) -> None:
        """Do something whose failure is recorded and leaves the rest alone."""
        try:
            action()
        except Aborted:
            raise
        except ArchiveBusy as error:
            # Another process does it.
            _log.info("archiving %s: %s", name, error.message)
        except Exception as error:
            self._report.failed += 1
            text = str(getattr(error, "message", "") or error)
            self._report.errors.append(f"{name}: {text}")
            _log.error("archiving %s failed: %s", name, text)
            self._tell(ARCHIVE_FAILED, source=self._source.name, manifest=name, error=text)

    def _drop_eligible(self) -> None:
        work = self._work
        op = MANIFESTS.eligible(self._source.name, _MANY, work.now())
        for manifest in work.database.read(op):
            if self._is_spent:
                return
            self._report.manifests.append(manifest.name)
            self._attempt(manifest.name, lambda manifest=manifest: self._drop(manifest))  # type: ignore[misc]

    def _drop(self, manifest: Manifest) -> None:
        from holdfast_archive.dropper import drop

        items = drop(self._work, self._source, manifest)
        self._report.dropped += items
        self._tell(ARCHIVE_DROPPED, source=manifest.source, manifest=manifest.name, items=items)

    def _export_closed(self) -> None:
        work, source = self._work, self._source
        now = work.now() or work.database.read(work.database.store.schema.clock())
        start, until = EARLIEST, closed_until(source, now)
        source.prepare(work.access, work.database)
        while not self._is_spent:
            with work.database.snapshot() as connection:
                work.access.prepare(connection)
                first = source.first(work.access, connection, (start, until))
                if first is None:
                    return
                period = period_of(first, source.length, source.zone)
                count = source.count(work.access, connection, period)
            start = period.end
            self._attempt(
                f"{source.name}/{period.name}",
                lambda period=period, count=count: self._export(period, count),  # type: ignore[misc]
            )

    def _export(self, period: Period, count: int) -> None:
        from holdfast_archive.exporter import count_expected, export, find_unfinished

        work, source = self._work, self._source
        parts = work.database.read(MANIFESTS.parts(source.name, period.name))
        if find_unfinished(parts) is None and count <= count_expected(parts):
            return
        self._report.manifests.append(f"{source.name}/{period.name}")
        manifest = export(work, source, period, parts)
        if manifest is None:
            return
        self._report.manifests[-1] = manifest.name
        self._report.periods += 1
        self._report.items += manifest.items
        self._report.rows += manifest.rows
        self._report.bytes += manifest.bytes
        self._tell(
            ARCHIVE_EXPORTED,
            source=manifest.source,
            manifest=manifest.name,
            rows=manifest.rows,
            bytes=manifest.bytes,
        )


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError) as error:
        raise InvalidOption(
            f"{repr(name)[:60]} is not a time zone", help="use an IANA name like America/Santiago"
        ) from error


def _length(period: PeriodLength) -> PeriodLength:
    if period not in ("day", "month"):
        raise InvalidOption(f"{repr(period)[:60]} is not a period", help="use day or month")
    return period


def archive_handler(archive: Archive) -> Callable[[ArchiveRun], None]:
    """Return the handler of the archive's cycle."""

    def archive_export(run: ArchiveRun) -> None:
        report = archive.run(limit=run.max_items, should_stop=lambda: run.aborted)
        for name in ("periods", "rows", "bytes", "dropped", "failed"):
            run.count(name, getattr(report, name))
        run.count("processed", report.periods)
        if not report.configured:
            run.count("skipped")
        if report.failed:
            # The run fails, so that people see it and the slot is tried again; its counts are kept.
            raise ArchiveIncomplete("; ".join(report.errors)[:2_000])

    return archive_export
