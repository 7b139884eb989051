"""Parquet files of rows: written in bounded memory, the same bytes for the same rows, and read back in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast_archive.columns import column_of, comparable, field_of, from_arrow, to_arrow
from holdfast_archive.table_access import TableColumn

GROUP_ROWS = 50_000
GROUP_BYTES = 8 * 1024 * 1024
"""A row group ends after so many rows or bytes: what is in memory at a time, and what a reader can skip."""

_READ_ROWS = 500


class ParquetFileWriter:
    """Writes one file. Where a row group ends depends on the rows alone, so the same rows give the same bytes."""

    def __init__(
        self, path: Path, columns: Sequence[TableColumn], metadata: Mapping[str, str] | None = None
    ) -> None:
        self._columns = columns
        self._schema = pa.schema([field_of(each) for each in columns], metadata=metadata)
        self._file = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._write_group()
        self._file.close()

    def write(self, rows: Sequence[Sequence[Any]]) -> int:
        """Add rows as the database returned them; return their size in bytes. Raises: Unfit."""
        if not rows:
            return 0
        arrays = [
            to_arrow(column, values)
            for column, values in zip(self._columns, zip(*rows, strict=True), strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._waiting_rows >= GROUP_ROWS or self._waiting_bytes >= GROUP_BYTES:
            self._write_group()
        size: int = batch.nbytes
        return size

    def _write_group(self) -> None:
        if self._waiting:
            self._file.write_table(
                pa.Table.from_batches(self._waiting), row_group_size=self._waiting_rows
            )
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0


class ParquetFileReader:
    """Reads one file of ours."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path, buffer_size=1024 * 1024, pre_buffer=False)
        schema = self._file.schema_arrow
        self.columns = [column_of(each) for each in schema]
        self.metadata = {
            key.decode(): value.decode() for key, value in (schema.metadata or {}).items()
        }
        self.rows: int = self._file.metadata.num_rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self._file.close()

    def batches(self, size: int = _READ_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows in their order."""
        return self._file.iter_batches(size, use_threads=False)  # type: ignore[no-any-return,unused-ignore]

    def values(self, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
        """Return a batch's rows as the database takes them back."""
        return rows_of(self.columns, batch)


def rows_of(columns: Sequence[TableColumn], batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Return a batch's rows as the database takes them back."""
    found = [
        from_arrow(column, array) for column, array in zip(columns, batch.columns, strict=True)
    ]
    return list(zip(*found, strict=True))


def comparable_rows(columns: Sequence[TableColumn], batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Return a batch's rows as values that are equal only where not a single bit differs."""
    found = [
        comparable(column, array) for column, array in zip(columns, batch.columns, strict=True)
    ]
    return list(zip(*found, strict=True))


def batch_of(columns: Sequence[TableColumn], rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Return rows as the database returned them as a batch. Raises: Unfit."""
    values = list(zip(*rows, strict=True)) if rows else [() for _ in columns]
    arrays = [to_arrow(column, each) for column, each in zip(columns, values, strict=True)]
    return pa.RecordBatch.from_arrays(
        arrays, schema=pa.schema([field_of(each) for each in columns])
    )
