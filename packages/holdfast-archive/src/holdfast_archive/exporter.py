"""Exports one period: rows of one snapshot to Parquet, uploaded, read back and compared.

The key of an object has the SHA-256 of its content, and the same rows give the same content: an export that is repeated
after a crash writes the same object again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from holdfast.core.errors import Aborted
from holdfast.storage.id_generator import new_id
from holdfast_archive.errors import ArchiveCorrupted
from holdfast_archive.manifest import ArchivedObject, Manifest, Period
from holdfast_archive.manifest_store import ARCHIVING, MANIFESTS
from holdfast_archive.parquet_file import ParquetFileWriter
from holdfast_archive.sources import ChainSource, Member, Seen, Source
from holdfast_archive.table_access import Shape, Unfit
from holdfast_archive.work import Hold, Work, keep_renewed, temporary_folder
from holdfast_files.errors import FilesError

MEDIA_TYPE = "application/vnd.apache.parquet"
TELL_EVERY = 10_000

NOT_EXPORTED = "{}"
"""The definition of a manifest before its objects are stored."""


class Definition(msgspec.Struct, frozen=True):
    """What a restore needs to know of the source besides the files."""

    source: str
    table: str
    key: list[str]
    keep_ms: int | None
    columns: dict[str, list[str]]


def find_unfinished(parts: Sequence[Manifest]) -> Manifest | None:
    """Return the newest part if it is to be exported again: it failed, or its process may have died."""
    last = parts[-1] if parts else None
    if last is None or last.state in ("verified", "dropped") or last.dropped:
        return None
    return last


def count_expected(parts: Sequence[Manifest]) -> int:
    """Return how many items of a period should be in the table, by the parts that cover them."""
    return sum(each.items - each.dropped for each in parts if each.is_live)


def export(
    work: Work, source: Source, period: Period, parts: Sequence[Manifest]
) -> Manifest | None:
    """Export what no live part of a period covers; None when another process does it, or nothing is left to export.

    Raises: ArchiveError, FilesError, LeaseLost, and what the database raises; the manifest says why it failed.
    """
    again, archiving = find_unfinished(parts), ARCHIVING
    part = again.part if again else len(parts)
    token = new_id()
    claimed = work.database.run(
        archiving.claim(
            new_id(), source.name, period.name, part, NOT_EXPORTED, token, work.lease_ms, work.now()
        )
    )
    if claimed is None:
        return None
    hold = Hold(claimed, token)
    with keep_renewed(work.database, hold, work.lease_ms, work.now):
        try:
            return _export(work, source, period, hold, [each for each in parts if each.is_live])
        except BaseException as error:
            reason = describe(error)
            work.give_up(hold, reason, "failed" if reason else "pending")
            raise


def describe(error: BaseException) -> str | None:
    """Return the reason of a failure as a manifest keeps it; being stopped is none."""
    if isinstance(error, Aborted) or not isinstance(error, Exception):
        return None
    code = getattr(error, "code", None)
    text = str(getattr(error, "message", "") or error) or type(error).__name__
    return f"{code}: {text}" if code else f"{type(error).__name__}: {text}"


def _export(
    work: Work, source: Source, period: Period, hold: Hold, live: Sequence[Manifest]
) -> Manifest | None:
    archiving, now = ARCHIVING, work.now
    with temporary_folder() as folder:
        exported, items, definition = _write(work, source, period, hold, live, folder)
        uploaded, total = 0, sum(each.rows for each, _ in exported)
        work.report(hold, "upload", uploaded, total)
        if not exported:
            _leave_nothing(work, hold)
            return None
        for found, path in exported:
            work.files.put(found.key, path, MEDIA_TYPE)
            uploaded += found.rows
            work.report(hold, "upload", uploaded, total)
    objects = [found for found, _ in exported]
    hold.check(
        work.database.run(
            archiving.mark_exported(
                hold.manifest.id,
                hold.token,
                objects,
                items,
                msgspec.json.encode(definition).decode(),
                now(),
            )
        )
    )
    stale = {each.key for each in hold.manifest.objects} - {each.key for each in objects}
    hold.manifest = msgspec.structs.replace(
        hold.manifest, objects=objects, rows=sum(each.rows for each in objects)
    )
    with work.fetch_all(hold):
        pass
    op = archiving.mark_verified(hold.manifest.id, hold.token, source.keep_ms, now())
    hold.check(work.database.run(op))
    for key in stale:
        # An earlier try that ended before its object was verified; nothing refers to it now.
        with suppress(FilesError):
            work.files.delete(key)
    return work.database.read(MANIFESTS.get(hold.manifest.id))


def _leave_nothing(work: Work, hold: Hold) -> None:
    archiving, id = ARCHIVING, hold.manifest.id
    if not work.database.run(archiving.remove_empty(id, hold.token)):
        reason = "there are no rows left to export"
        work.database.run(archiving.release(id, hold.token, reason, "failed", work.now()))


Exported = tuple[ArchivedObject, Path]


def _write(
    work: Work, source: Source, period: Period, hold: Hold, live: Sequence[Manifest], folder: Path
) -> tuple[list[Exported], int, Definition]:
    """Write the files of a period from one snapshot."""
    exported: list[Exported] = []
    items, columns, key = 0, dict[str, list[str]](), list[str]()
    with Seen(folder) as covered:
        _cover(work, source, hold, live, covered)
        with work.database.snapshot() as connection:
            work.access.prepare(connection)
            for member in source.members(work.access, connection, period, covered):
                path = folder / f"{member.name}.parquet"
                shape, rows = _write_member(work, hold, member, path)
                items += member.items
                columns[member.name] = [f"{each.name} {each.type}" for each in shape.columns]
                key = key or list(shape.key)
                if rows:
                    exported.append((_object(source, period, hold, member.name, path, rows), path))
    definition = Definition(source.name, source.table, key, source.keep_ms, columns)
    return exported, items, definition


def _write_member(work: Work, hold: Hold, member: Member, path: Path) -> tuple[Shape, int]:
    """Write one table; a column that cannot hold all its values is written as text instead."""
    shape = member.shape
    while True:
        try:
            return shape, _write_rows(work, hold, member, shape, path)
        except Unfit as error:
            loosened = (
                work.access.loosen(each) if each.name == error.column.name else each
                for each in shape.columns
            )
            shape = replace(shape, columns=tuple(loosened))


def _write_rows(work: Work, hold: Hold, member: Member, shape: Shape, path: Path) -> int:
    manifest = hold.manifest
    metadata = {
        "holdfast.source": manifest.source,
        "holdfast.period": manifest.period,
        "holdfast.table": member.name,
        "holdfast.key": ",".join(shape.key),
    }
    with (
        closing(member.rows(shape)) as batches,
        ParquetFileWriter(path, shape.columns, metadata) as file,
    ):
        told = 0
        work.report(hold, "export", 0)
        for rows in batches:
            batches.expect(len(rows), file.write(member.keep(shape, rows)))
            if file.rows - told >= TELL_EVERY:
                told = file.rows
                work.report(hold, "export", told)
    work.report(hold, "export", file.rows)
    return file.rows


def _object(
    source: Source, period: Period, hold: Hold, table: str, path: Path, rows: int
) -> ArchivedObject:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    part = hold.manifest.part
    prefix = f"{table}-" if isinstance(source, ChainSource) else ""
    key = f"{source.name}/{period.name}/{prefix}{part}-{sha256}.parquet"
    return ArchivedObject(table, key, rows, path.stat().st_size, sha256)


def _cover(work: Work, source: Source, hold: Hold, live: Sequence[Manifest], covered: Seen) -> None:
    """Note what the live parts of the period hold. Raises: ArchiveCorrupted when one of them is not what it was."""
    for manifest in live:
        try:
            with work.fetch_all(Hold(manifest, hold.token)) as readers:
                for table, reader in readers.items():
                    for batch in reader.batches():
                        covered.add(source.cover(work.access, table, reader.columns, batch))
        except ArchiveCorrupted as error:
            # That part is exported again once it is found out; what it covers is not decided here.
            raise ArchiveCorrupted(
                f"{manifest.name}, which covers other rows: {error.message}"
            ) from error
