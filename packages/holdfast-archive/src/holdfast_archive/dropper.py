"""Drops what a verified manifest covers: exactly the rows that are equal, in small transactions that it counts.

The objects are read back and compared first. Rows that changed or came late are not in them, so they stay, and the next
run exports them as a supplement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from holdfast.storage.operation import run
from holdfast.storage.store.params import texts
from holdfast_archive.errors import ArchiveCorrupted
from holdfast_archive.exporter import describe
from holdfast_archive.manifest import Manifest, period_named
from holdfast_archive.manifest_store import ARCHIVING
from holdfast_archive.parquet_file import ParquetFileReader
from holdfast_archive.sources import ChainSource, Source, TableSource
from holdfast_archive.table_access import MEMBERS, Print, Shape, span_of
from holdfast_archive.work import Hold, Work

STEP_ROWS = 1_000
STEP_CHAINS = 200
"""How much one transaction removes: on SQLite others wait for it."""


def drop(work: Work, source: Source, manifest: Manifest) -> int:
    """Drop the items of a manifest; return how many were removed.

    Raises: ArchiveCorrupted, after which the next run exports the rows again; ArchiveBusy, LeaseLost, FilesError.
    """
    archiving = ARCHIVING
    with work.hold(manifest, ["verified"]) as hold:
        try:
            with work.fetch_all(hold) as readers:
                if isinstance(source, ChainSource):
                    removed = _drop_chains(work, hold, readers)
                else:
                    removed = _drop_rows(work, source, hold, readers[source.table])
            work.report(hold, "drop", hold.manifest.rows, hold.manifest.rows)
            hold.check(
                work.database.run(archiving.mark_dropped(manifest.id, hold.token, work.now()))
            )
            return removed
        except BaseException as error:
            # A damaged object is not counted on any more; everything else may go better next time.
            work.give_up(
                hold, describe(error), "failed" if isinstance(error, ArchiveCorrupted) else None
            )
            raise


def _drop_rows(work: Work, source: TableSource, hold: Hold, reader: ParquetFileReader) -> int:
    access, selection = work.access, source.selection
    span = span_of(period_named(hold.manifest.period, source.zone))
    done, removed, before = 0, 0, hold.manifest.dropped
    for batch in reader.batches(STEP_ROWS):
        done += batch.num_rows
        if done <= before:
            continue
        work.report(hold, "drop", done, hold.manifest.rows)
        with work.database.transaction() as tx:
            access.prepare(tx.connection)
            shape = access.shape(tx.connection, source.table, selection.key)
            shape = shape.with_columns(reader.columns)
            rows = reader.values(batch)
            keys = [[row[place] for place in shape.places] for row in rows]
            found = access.lookup(tx.connection, shape, keys, (selection, span))
            present = set(access.prints(shape.columns, found)) - {None}
            covered = access.prints_of(shape.columns, batch)
            equal = [key for key, each in zip(keys, covered, strict=True) if each in present]
            if equal:
                access.delete(tx.connection, shape, equal)
            _count(work, hold, tx, done - max(before, done - batch.num_rows))
        removed += len(equal)
    return removed


def _count(work: Work, hold: Hold, tx: Any, items: int) -> None:
    """Note in the same transaction how far the drop has come. Raises: LeaseLost."""
    archiving = ARCHIVING
    hold.check(run(archiving.count_dropped(hold.manifest.id, hold.token, items, work.now()), tx))


ChainPrints = tuple[tuple[str, Print], ...]
"""Everything a chain consists of: the rows of its tables, in order."""


def _drop_chains(work: Work, hold: Hold, readers: dict[str, ParquetFileReader]) -> int:
    store, access = work.database.store, work.access
    archived, shapes = _chains(work, readers), dict[str, Shape]()
    removed = 0
    for _ in islice(archived, hold.manifest.dropped):
        pass
    done = hold.manifest.dropped
    while step := dict(islice(archived, STEP_CHAINS)):
        done += len(step)
        work.report(hold, "drop", done, hold.manifest.items)
        with work.database.transaction() as tx:
            access.prepare(tx.connection)
            # What an operator or another chain still needs is left; a later part will hold it.
            now = work.now() or run(store.schema.clock(), tx)
            held = run(store.retention.hold(list(step), now + 1, now + 1, work.now()), tx)
            waited = run(store.retention.waited(held), tx) if held else set()
            wanted = [each for each in held if each not in waited]
            present = _present(work, tx.connection, readers, shapes, wanted)
            equal = [id for id, chain in present.items() if step[id] == chain]
            if equal:
                run(store.chains.delete(equal, work.now(), keep_keys=True), tx)
            _count(work, hold, tx, len(step))
        removed += len(equal)
    return removed


def _chains(work: Work, readers: dict[str, ParquetFileReader]) -> Iterator[tuple[str, ChainPrints]]:
    """Yield the archived chains with all their rows; every file has them in the same order."""
    jobs = _Peekable(_rows(work, readers["job"], "chain_id", "id"))
    others = {
        name: _Peekable(_rows(work, reader, "job_id"))
        for name, reader in readers.items()
        if name != "job"
    }
    while jobs:
        chain_id, rows, members = jobs.key[0], list[tuple[str, Print]](), set[Any]()
        while jobs and jobs.key[0] == chain_id:
            members.add(jobs.key[1:])
            rows.append(("job", jobs.take()))
        for name in MEMBERS:
            while name in others and others[name] and others[name].key in members:
                rows.append((name, others[name].take()))
        yield chain_id, tuple(rows)


def _present(
    work: Work,
    connection: Any,
    readers: dict[str, ParquetFileReader],
    shapes: dict[str, Shape],
    chains: Sequence[str],
) -> dict[str, ChainPrints]:
    """Read the same of the chains as they are in the database; `shapes` keeps what was learned of the tables."""
    found: dict[str, list[tuple[str, Print]]] = {}
    chain_of: dict[Any, str] = {}
    if not chains:
        return {}
    for name in MEMBERS:
        if name not in shapes:
            shape = work.access.member(connection, name)
            own = readers.get(name)
            shapes[name] = shape if own is None else shape.with_columns(own.columns)
        shape = shapes[name]
        rows = work.access.chain_lookup(connection, shape, name, texts(chains))
        places = shape.places_of("id", "chain_id") if name == "job" else shape.places_of("job_id")
        for row, each in zip(rows, work.access.prints(shape.columns, rows), strict=True):
            if name == "job":
                chain_of[row[places[0]]] = row[places[1]]
            found.setdefault(chain_of[row[places[0]]], []).append((name, each))
    return {id: tuple(rows) for id, rows in found.items()}


def _rows(work: Work, reader: ParquetFileReader, *key: str) -> Iterator[tuple[Any, Print]]:
    for batch in reader.batches():
        keys = zip(*(batch.column(each).to_pylist() for each in key), strict=True)
        yield from zip(keys, work.access.prints_of(reader.columns, batch), strict=True)


class _Peekable:
    """Rows one after the other, with the key of the next one."""

    def __init__(self, rows: Iterator[tuple[Any, Print]]) -> None:
        self._rows = rows
        self._next = next(rows, None)

    def __bool__(self) -> bool:
        return self._next is not None

    @property
    def key(self) -> Any:
        """The key of the next row."""
        assert self._next is not None
        return self._next[0]

    def take(self) -> Print:
        """Return the next row and go on."""
        assert self._next is not None
        _, found = self._next
        self._next = next(self._rows, None)
        return found
