"""The laws of an archive: objects are what was stored, and rows belong together, also with those of the database.

Objects are read one manifest at a time, into a temporary folder; what is known of their rows is in a file there.
Needs holdfast-archive.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
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
_CHANGEABLE = {"input", "version", "cost"}
"""What a job that was redriven may get anew: what it was asked for since, and what a later limit counts."""


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
        self._add(AGREES, self._scratch.ask("disagreements", self._enough))
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
                    wrong.append((each.key, _without(each.key, error.message)))
                else:
                    readers[each.table] = stack.enter_context(reader)
            if not wrong and manifest.source in (JOBS, DEAD_LETTERS):
                self._read_chains(manifest, readers)
        return wrong

    def _read_chains(self, manifest: Manifest, readers: dict[str, ParquetFileReader]) -> None:
        scratch, access = self._scratch, self._work.access
        with self._work.database.snapshot() as connection:
            access.prepare(connection)
            # The outcomes come first: by them is known which jobs were redriven since.
            for table, reader in sorted(readers.items(), key=lambda each: each[0] != "outcome"):
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
                        self._compare_jobs(self._pairs(connection, shape, reader, batch))
                    elif table == "outcome":
                        scratch.put(
                            "end", ((str(row["job_id"]), int(row["fence"])) for row in rows)
                        )
                        self._compare_outcomes(self._pairs(connection, shape, reader, batch))
                    else:
                        scratch.put("part", (_part(table, row) for row in rows))
                        same = scratch.same(str(row["job_id"]) for row in rows)
                        if same and table in ("attempt", "step"):
                            pairs = self._pairs(connection, shape, reader, batch)
                            self._compare_parts(table, same, pairs)
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

    def _pairs(
        self, connection: Any, shape: Shape, reader: ParquetFileReader, batch: Any
    ) -> list[_RowPair]:
        """Pair archived rows with those of the database, by the columns that both have."""
        access, own = self._work.access, {each.name for each in shape.columns}
        columns = tuple(each for each in reader.columns if each.name in own)
        names = [each.name for each in columns]
        common, part = replace(shape, columns=columns), batch.select(names)
        archived, prints = rows_of(columns, part), access.prints_of(columns, part)
        keys = [[row[place] for place in common.places] for row in archived]
        stored = access.lookup(connection, common, keys) if keys else []
        present = {
            tuple(str(row[place]) for place in common.places): (row, each)
            for row, each in zip(stored, access.prints(columns, stored), strict=True)
        }
        pairs = []
        for number, (key, row, print) in enumerate(zip(keys, archived, prints, strict=True)):
            found = present.get(tuple(map(str, key)))
            pair = _RowPair(dict(zip(names, row, strict=True)))
            if found is not None:
                other, other_print = found
                pair.stored = dict(zip(names, other, strict=True))
                pair.differing = [
                    each.name
                    for place, each in enumerate(columns if print != other_print else ())
                    if access.prints((each,), [(other[place],)])
                    != access.prints_of((each,), part.slice(number, 1).select([each.name]))
                ]
            pairs.append(pair)
        return pairs

    def _compare_outcomes(self, pairs: Sequence[_RowPair]) -> None:
        """Compare how jobs ended.

        A job that was redriven may be in several manifests, of which the database has the outcome of one or none.
        """
        present = [(str(each.archived["job_id"]), each) for each in pairs if each.stored]
        equal = [job for job, each in present if not each.differing]
        redriven = [job for job, each in present if each.differing and each.was_redriven]
        failed = [job for job, each in present if each.archived["state"] == "failed"]
        self._scratch.put("same", ((job,) for job in equal))
        self._scratch.put("explained", ((job,) for job in {*equal, *redriven} & {*failed}))
        self._scratch.put(
            "differing",
            (
                (job, each.words("outcome"))
                for job, each in present
                if each.differing and not each.was_redriven
            ),
        )

    def _compare_jobs(self, pairs: Sequence[_RowPair]) -> None:
        """Compare what jobs were asked to do."""
        same = self._scratch.same(str(each.archived["id"]) for each in pairs)
        for pair in pairs:
            job = str(pair.archived["id"])
            if job not in same:
                pair.differing = [each for each in pair.differing if each not in _CHANGEABLE]
            if pair.differing:
                self._add(AGREES, [(job, pair.words("job"))])

    def _compare_parts(self, table: str, same: set[str], pairs: Sequence[_RowPair]) -> None:
        """Compare the attempts or steps of jobs that were not redriven; an open wait may have got another time."""
        for pair in pairs:
            job = str(pair.archived["job_id"])
            if job not in same or pair.archived.get("state") == "open":
                continue
            name = f"{table} {pair.archived['name' if table == 'step' else 'attempt']}"
            if pair.stored is None:
                self._add(AGREES, [(job, f"{name} is in the archive only")])
            elif pair.differing:
                self._add(AGREES, [(job, pair.words(name))])


@dataclass(slots=True)
class _RowPair:
    """An archived row, the database's row with its key, if there is one, and the columns in which they differ."""

    archived: dict[str, Any]
    stored: dict[str, Any] | None = None
    differing: Sequence[str] = ()

    @property
    def was_redriven(self) -> bool:
        """Whether an outcome can be that of a job that had failed: it ended at another time, and no fence goes back."""
        return (
            self.stored is not None
            and self.archived["state"] == "failed"
            and "finished_at" in self.differing
            and int(self.stored["fence"]) >= int(self.archived["fence"])
        )

    def words(self, name: str) -> str:
        """Say how they differ."""
        return f"{name} has other values than the archive: {', '.join(self.differing)}"


def _without(key: str, message: str) -> str:
    """Say what is wrong with an object, without its key."""
    rest = message.removeprefix(f"{key} ")
    return message if rest == message else f"it {rest}"


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
        for each in ("places", "jobs", "ends", "parts", "sames", "explanations", "differences"):
            self._file.execute(self._statements[each])

    def put(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows of one kind."""
        self._file.execute("begin")
        self._file.executemany(self._statements[f"put_{name}"], rows)
        self._file.execute("commit")

    def ask(self, name: str, limit: int) -> list[tuple[str, str]]:
        """What breaks a law."""
        return self._file.execute(self._statements[name], (limit,)).fetchall()

    def same(self, jobs: Iterable[str]) -> set[str]:
        """Which of these jobs are known to have ended in the database as in the archive."""
        return {job for (job,) in self._file.execute(self._statements["same"], (texts(jobs),))}

    def forget(self) -> None:
        """Forget what concerns one manifest alone."""
        for each in ("jobs", "ends", "parts", "sames"):
            self._file.execute(self._statements[f"forget_{each}"])

    def close(self) -> None:
        """Close the file."""
        self._file.close()
