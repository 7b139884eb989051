"""The cycle that runs the archive, in workers and in single ticks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.archive.engine import Archive
from holdfast.core.errors import ArchiveIncomplete

ARCHIVE_CYCLE = "archiveExport"
ARCHIVE_TIMEOUT = "4h"
"""Much longer than other cycles: the first run may have years to export."""

ARCHIVE_PERIODS = 10_000
"""Periods of one run, unless the cycle says otherwise: years of days."""


class ArchiveRun(Protocol):
    """What the archive needs of a cycle's run."""

    max_items: int | None

    @property
    def aborted(self) -> bool:
        """Whether it must stop."""

    def count(self, name: str, number: int | float = 1) -> None:
        """Add to a counter of the run."""


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
