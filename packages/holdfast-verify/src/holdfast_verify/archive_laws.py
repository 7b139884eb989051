"""The laws of an archive: objects are what was stored, and rows belong together, also with those of the database.

Objects are read one manifest at a time, into a temporary folder; what is known of their rows is in a file there.
Needs holdfast-archive.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.settings import load_some
from holdfast.storage.sql_loader import load_statements, without_comments
from holdfast.storage.store.params import texts
from holdfast_archive.engine import LEASE_MS, Archive
from holdfast_archive.errors import ArchiveCorrupted
from holdfast_archive.manifest import DEAD_LETTERS, JOBS, Manifest
from holdfast_archive.manifest_store import MANIFESTS
from holdfast_archive.parquet_file import ParquetFileReader, rows_of
from holdfast_archive.registration import declared_archive
from holdfast_archive.sources import tables_of
from holdfast_archive.table_access import Shape
from holdfast_archive.work import Work, temporary_folder
from holdfast_verify.laws import Breach, Law, LawVerdict, judge

if TYPE_CHECKING:
    from holdfast.app import Holdfast

INTACT = Law(
    "archive-intact",
    "Every object of the archive is there, with the digest and rows of its manifest.",
)
WHOLE = Law("archive-whole", "An archived job has its outcome, and every archived row its job.")
CHAINS = Law("archive-chains", "Archive and database together have each chain without gap or fork.")
FENCES = Law("archive-fences", "No archived attempt or step has a higher fence than its job.")
AGREES = Law("archive-agrees", "What archive and database both have of a job is the same.")
ARCHIVE_LAWS = (INTACT, WHOLE, CHAINS, FENCES, AGREES)

_PLACE = ("id", "chain_id", "chain_index")
_PAGE = 500
_STEP_ROWS = 1_000
_HAVE_OBJECTS = ("exported", "verified", "dropped", "failed")


def check_archive(work: Work, limit: int) -> list[LawVerdict]:
    """Read every object of an archive, and look for what breaks its laws; of each law at most so many rows."""
    with temporary_folder() as folder, closing(_Scratch(folder / "rows.db")) as scratch:
        check = _Check(work, scratch, limit)
        for manifest in _manifests(work):
            check.read(manifest)
        return check.verdicts()


def work_on(app: Holdfast, url: str = "") -> Work:
    """How the archive at a URL is read; without one that of the application, or of HOLDFAST_ARCHIVE.

    Raises: ArchiveNotConfigured, ConfigError.
    """
    declared = None if url else declared_archive(app)
    if declared is None:
        named: Any = url or load_some(("HOLDFAST_ARCHIVE",), {})["HOLDFAST_ARCHIVE"]
        declared = Archive(lambda: app.database, named)
    return Work(app.database, declared.files, tables_of(app.database), app.instant, LEASE_MS)


def _manifests(work: Work) -> Iterator[Manifest]:
    after = None
    while page := work.database.read(MANIFESTS.page(limit=_PAGE, after=after)):
        yield from (each for each in page if each.objects and each.state in _HAVE_OBJECTS)
        after = page[-1].id


class _Check:
    def __init__(self, work: Work, scratch: _Scratch, limit: int) -> None:
        self._work = work
        self._scratch = scratch
        self._limit = limit
        self._enough = limit + 1
        self._found: dict[str, list[Breach]] = {law.name: [] for law in ARCHIVE_LAWS}

    def verdicts(self) -> list[LawVerdict]:
        """What breaks each law."""
        self._add(CHAINS, self._scratch.ask("chains", self._enough))
        return [judge(law, self._found[law.name], self._limit) for law in ARCHIVE_LAWS]

    def _add(self, law: Law, rows: Iterable[Sequence[str]]) -> None:
        found = self._found[law.name]
        found += [Breach(*row) for row in rows][: self._enough - len(found)]

    def read(self, manifest: Manifest) -> None:
        """Look at the objects of one manifest; one that was exported again meanwhile is read as it is now."""
        while wrong := self._read(manifest):
            newer = self._work.database.read(MANIFESTS.get(manifest.id))
            if newer is None or newer.objects == manifest.objects:
                self._add(INTACT, wrong if newer else [])
                return
            manifest = newer

    def _read(self, manifest: Manifest) -> list[tuple[str, str]]:
        """Return the objects that are not what was stored."""
        wrong = []
        with temporary_folder() as folder, ExitStack() as stack:
            readers: dict[str, ParquetFileReader] = {}
            for place, each in enumerate(manifest.objects):
                try:
                    reader = self._work.fetch(each, folder / str(place))
                except ArchiveCorrupted as error:
                    wrong.append((each.key, error.message))
                else:
                    readers[each.table] = stack.enter_context(reader)
            if not wrong and manifest.source in (JOBS, DEAD_LETTERS):
                self._read_chains(manifest, readers)
        return wrong

    def _read_chains(self, manifest: Manifest, readers: dict[str, ParquetFileReader]) -> None:
        scratch, access = self._scratch, self._work.access
        with self._work.database.snapshot() as connection:
            access.prepare(connection)
            for table, reader in readers.items():
                shape = access.member(connection, table)
                for batch in reader.batches(_STEP_ROWS):
                    rows = [
                        dict(zip((each.name for each in reader.columns), row, strict=True))
                        for row in reader.values(batch)
                    ]
                    if table == "job":
                        scratch.put("job", ((str(row["id"]),) for row in rows))
                        scratch.put("place", map(_place, rows))
                        chains = texts(sorted({str(row["chain_id"]) for row in rows}))
                        scratch.put("place", self._places_of(connection, shape, chains))
                    elif table == "outcome":
                        scratch.put(
                            "end", ((str(row["job_id"]), int(row["fence"])) for row in rows)
                        )
                    else:
                        scratch.put("part", (_part(table, row) for row in rows))
                    if table in {"job", "outcome"}:
                        self._compare(connection, table, shape, reader, batch)
        name = f"in {manifest.name}: "
        self._add(WHOLE, ((job, name + text) for job, text in scratch.ask("torn", self._enough)))
        self._add(FENCES, ((job, name + text) for job, text in scratch.ask("fences", self._enough)))
        scratch.forget()

    def _places_of(
        self, connection: Any, shape: Shape, chains: str
    ) -> Iterator[tuple[str, int, str]]:
        """The places that the database has of chains."""
        wanted = [each for each in shape.columns if each.name in _PLACE]
        small = replace(shape, columns=tuple(wanted))
        for row in self._work.access.chain_lookup(connection, small, "job", chains):
            yield _place(dict(zip((each.name for each in wanted), row, strict=True)))

    def _compare(
        self, connection: Any, table: str, shape: Shape, reader: ParquetFileReader, batch: Any
    ) -> None:
        """Compare rows with those of the database, by the columns that both have.

        An outcome is replaced when its job is tried again, which its fence tells.
        """
        access, own = self._work.access, {each.name for each in shape.columns}
        columns = tuple(each for each in reader.columns if each.name in own)
        common = replace(shape, columns=columns)
        part = batch.select([each.name for each in columns])
        archived, prints = rows_of(columns, part), access.prints_of(columns, part)
        (key,) = common.places
        stored = access.lookup(connection, common, [[row[key]] for row in archived])
        present = {
            str(row[key]): (row, each)
            for row, each in zip(stored, access.prints(columns, stored), strict=True)
        }
        fences = [n for n, each in enumerate(columns) if each.name == "fence"]
        for number, (row, print) in enumerate(zip(archived, prints, strict=True)):
            other, other_print = present.get(str(row[key]), (row, print))
            if print == other_print or any(str(row[n]) != str(other[n]) for n in fences):
                continue
            names = [
                each.name
                for n, each in enumerate(columns)
                if access.prints((each,), [(other[n],)])
                != access.prints_of((each,), part.slice(number, 1).select([each.name]))
            ]
            text = f"{table} has other values than the archive: {', '.join(names)}"
            self._add(AGREES, [(str(row[key]), text)])


def _place(row: dict[str, Any]) -> tuple[str, int, str]:
    return str(row["chain_id"]), int(row["chain_index"]), str(row["id"])


def _part(table: str, row: dict[str, Any]) -> tuple[str, str, int]:
    return table, str(row["job_id"]), int(row.get("fence") or 0)


class _Scratch:
    """What is known of the archive's rows, in a file."""

    def __init__(self, path: Path) -> None:
        loaded = load_statements("holdfast_verify").items()
        self._statements = {
            name.removeprefix("scratch_"): without_comments(text) for name, text in loaded
        }
        self._file = sqlite3.connect(path, isolation_level=None)
        self._file.execute("pragma journal_mode = off")
        self._file.execute("pragma synchronous = off")
        for each in ("places", "jobs", "ends", "parts"):
            self._file.execute(self._statements[each])

    def put(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows of one kind."""
        self._file.execute("begin")
        self._file.executemany(self._statements[f"put_{name}"], rows)
        self._file.execute("commit")

    def ask(self, name: str, limit: int) -> list[tuple[str, str]]:
        """What breaks a law."""
        return self._file.execute(self._statements[name], (limit,)).fetchall()

    def forget(self) -> None:
        """Forget what concerns one manifest alone."""
        for each in ("jobs", "ends", "parts"):
            self._file.execute(self._statements[f"forget_{each}"])

    def close(self) -> None:
        """Close the file."""
        self._file.close()
