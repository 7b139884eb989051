"""Restores what a manifest holds: rows that are missing are inserted, in one transaction, and none is overwritten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.core.errors import InvalidOption, WrongState
from holdfast.storage.database import Transaction
from holdfast.storage.operation import Row, run
from holdfast_archive.errors import ArchiveCorrupted, RestoreConflict
from holdfast_archive.exporter import NOT_EXPORTED, Definition, describe
from holdfast_archive.manifest import DEAD_LETTERS, JOBS, Manifest
from holdfast_archive.manifest_store import ARCHIVING, MANIFESTS
from holdfast_archive.parquet_file import ParquetFileReader
from holdfast_archive.progress import Progress, Restored
from holdfast_archive.table_access import Shape
from holdfast_archive.work import Hold, Work

STEP_ROWS = 1_000


def restore(work: Work, manifest: Manifest, into: str | None) -> Restored:
    """Bring the rows of a manifest back, or into another table.

    Raises: InvalidOption, WrongState, ArchiveCorrupted, RestoreConflict, ArchiveSourceInvalid, ArchiveBusy, LeaseLost,
    FilesError.
    """
    if into == "":
        raise InvalidOption("the table to restore into has no name")
    is_chains = manifest.source in (JOBS, DEAD_LETTERS)
    if into is not None and is_chains:
        raise InvalidOption("jobs can only be restored to their own tables", help="omit the table")
    manifests = MANIFESTS
    with work.hold(manifest, ["exported", "verified", "dropped", "failed"]) as hold:
        try:
            definition = _definition_of(hold.manifest, into)
            with work.fetch_all(hold) as readers:
                counts = _restore(work, hold, definition, readers, into, is_chains)
        except BaseException as error:
            reason = describe(error) if isinstance(error, ArchiveCorrupted) else hold.manifest.error
            work.give_up(hold, reason)
            raise
    found = work.database.read(manifests.get(manifest.id))
    return Restored(found or manifest, *counts)


def _definition_of(manifest: Manifest, into: str | None) -> Definition:
    """Return what a manifest says of its source. Raises: WrongState when it holds nothing that may be restored."""
    is_safe = manifest.state in ("verified", "dropped")
    if manifest.definition == NOT_EXPORTED or (into is None and not is_safe):
        reason = f": {manifest.error}" if manifest.error else ""
        raise WrongState(
            f"{manifest.name} is {manifest.state}{reason}",
            help=f"run `holdfast archive verify {manifest.name}` once its objects are right again"
            if manifest.dropped
            else "nothing of it was dropped; the next run of the archive exports it again",
        )
    return msgspec.json.decode(manifest.definition, type=Definition)


def _restore(
    work: Work,
    hold: Hold,
    definition: Definition,
    readers: dict[str, ParquetFileReader],
    into: str | None,
    is_chains: bool,
) -> tuple[int, int]:
    archiving, total = ARCHIVING, hold.manifest.rows
    inserted, done, states = 0, 0, Counter[tuple[str, str]]()
    with work.database.transaction() as tx:
        access, connection = work.access, tx.connection
        access.prepare(connection)
        for name, reader in readers.items():
            shape = (
                access.member(connection, name)
                if is_chains
                else access.shape(connection, into or definition.table, definition.key)
            ).with_columns(reader.columns)
            for batch in reader.batches(STEP_ROWS):
                work.report(hold, "restore", done, total)
                missing = _find_missing(work, connection, shape, reader, batch)
                if missing:
                    if is_chains and name == "outcome":
                        _refuse_live(work, tx, shape, missing)
                        states.update(_states(shape, missing))
                    access.insert(connection, shape, missing)
                inserted += len(missing)
                done += batch.num_rows
        if is_chains:
            run(archiving.recount(_tally_rows(states), work.now()), tx)
        if into is None:
            op = archiving.mark_restored(
                hold.manifest.id, hold.token, definition.keep_ms, work.now()
            )
        else:
            error = hold.manifest.error
            op = archiving.release(hold.manifest.id, hold.token, error, None, work.now())
        hold.check(run(op, tx))
    # It is done, and the manifest released: nothing can be lost any more, and nothing stopped.
    work.on_progress(Progress("restore", hold.manifest.name, done, total))
    return inserted, done - inserted


def _find_missing(
    work: Work, connection: Any, shape: Shape, reader: ParquetFileReader, batch: Any
) -> list[Row]:
    """Return the rows of a batch that are not in the table. Raises: RestoreConflict."""
    rows, prints = reader.values(batch), work.access.prints_of(shape.columns, batch)
    keys = [tuple(row[place] for place in shape.places) for row in rows]
    found = work.access.lookup(connection, shape, keys)
    there = dict(
        zip(_identities(work, shape, found), work.access.prints(shape.columns, found), strict=True)
    )
    missing = []
    own = _identities(work, shape, rows)
    for row, key, identity, each in zip(rows, keys, own, prints, strict=True):
        if identity not in there:
            missing.append(row)
        elif there[identity] != each:
            shown = ", ".join(f"{n}={v}" for n, v in zip(shape.key, key, strict=True))
            raise RestoreConflict(f"{shape.table} already has a row with {shown} and other values")
    return missing


def _identities(work: Work, shape: Shape, rows: Sequence[Row]) -> list[Any]:
    """Return the keys of rows, written alike whether they come from a file or from the table."""
    columns = [shape.columns[place] for place in shape.places]
    return work.access.prints(
        columns, [tuple(row[place] for place in shape.places) for row in rows]
    )


def _refuse_live(work: Work, tx: Transaction, shape: Shape, outcomes: Sequence[Row]) -> None:
    """Raises: RestoreConflict for a job that is in the queue again: it would have ended as well."""
    (job,) = shape.places_of("job_id")
    if live := run(work.database.store.jobs.lock([str(row[job]) for row in outcomes]), tx):
        raise RestoreConflict(
            f"job {min(live)} was redriven and is in the queue",
            help="delete its chain if it is to be as it was archived",
        )


def _states(shape: Shape, rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return types and states of what counts: an event that was fanned out does not."""
    type, state, fanned_out = shape.places_of("type", "state", "fanned_out")
    return [(row[type], row[state]) for row in rows if row[fanned_out] not in (1, "true")]


def _tally_rows(states: Counter[tuple[str, str]]) -> list[dict[str, str | int]]:
    types = sorted({type for type, _ in states})
    return [
        {
            "type": type,
            **{state: states[(type, state)] for state in ("completed", "failed", "cancelled")},
        }
        for type in types
    ]
