"""The end of the story: cleanup and archive run, and what left the tables is in verified files, row for row."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from apps.harness.books import Fault
from sqlalchemy import Engine, func, select, table

from holdfast import Holdfast, HoldfastError
from holdfast_archive import Archive
from holdfast_archive.manifest import Manifest
from holdfast_files import open_files
from tenders.archiving import archive_table

CLEANUP = "cleanup"
EXPORT = "archiveExport"
SOURCES = ("tenders", "notification_deliveries")
PATIENCE_S = 120.0
POLL_S = 0.1


class ArchiveStory:
    """Has the nightly cycles run now, and compares tables, manifests and files; `faults` is what was found."""

    def __init__(
        self, jobs: Holdfast, engine: Engine, bucket: Path, say: Callable[[str], None]
    ) -> None:
        """Take the application, its tables and the directory that is its bucket."""
        self._jobs = jobs
        self._engine = engine
        self._bucket = bucket
        self._say = say
        self.faults: list[Fault] = []

    def play(self) -> None:
        """Clean up, export, drop, check."""
        before = {each: self._count(each) for each in SOURCES}
        self._run(CLEANUP)
        moved = {each: before[each] - self._count(each) for each in SOURCES}
        self._say("cleanup moved " + ", ".join(f"{n} {name}" for name, n in moved.items()))
        self._run(EXPORT)
        self._run(EXPORT)  # what the first run verified may be dropped by now
        manifests = Archive(lambda: self._jobs.database, str(self._bucket)).list()
        self.faults = [*self._check(manifests, moved)]
        states = Counter(each.state for each in manifests)
        shown = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        rows = sum(each.rows for each in manifests)
        self._say(f"archive: {len(manifests)} periods ({shown}), {rows} rows in files")

    def _run(self, cycle: str) -> None:
        """Have a cycle run on one of the workers, and wait for the end of it."""
        asked = datetime.now(UTC)
        with self._jobs.transaction() as tx:
            self._jobs.cycles.run_now(tx, cycle)
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            for run in self._jobs.cycles.runs(cycle, limit=5):
                if run.started_at >= asked and run.outcome == "completed":
                    return
            time.sleep(POLL_S)
        self.faults.append(Fault("missing", f"{cycle} did not complete"))

    def _check(self, manifests: list[Manifest], moved: dict[str, int]) -> Iterator[Fault]:
        yield from self.faults
        files = open_files(str(self._bucket))
        for manifest in manifests:
            if manifest.state not in ("verified", "dropped"):
                yield Fault("wrong", f"{manifest.name} is {manifest.state}: {manifest.error}")
            for each in manifest.objects:
                try:
                    files.verify(each.key, sha256=each.sha256)
                except HoldfastError as error:
                    yield Fault("missing", f"{each.key}: {error}")
        for source, number in moved.items():
            mine = [each for each in manifests if each.source == source]
            if sum(each.rows for each in mine) != number:
                yield Fault("missing", f"not all {number} moved rows of {source} are in files")
            left = self._count(archive_table(self._jobs.url, source))
            dropped = sum(each.rows for each in mine if each.state == "dropped")
            if left + dropped != number:
                kind = f"{left} rows of {source} are left, {dropped} were dropped, of {number}"
                yield Fault("wrong", kind)

    def _count(self, name: str) -> int:
        schema, _, plain = name.rpartition(".")
        with self._engine.connect() as connection:
            rows = select(func.count()).select_from(table(plain, schema=schema or None))
            return connection.execute(rows).scalar_one()
