"""How much room the database takes: its tables where it is a server's, the file and its log where it is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from holdfast.storage.port import Store
from holdfast.storage.statement import Op


class TableSize(msgspec.Struct, frozen=True):
    """One table: rows as the statistics have them, dead ones that vacuum has not removed, bytes with its indexes."""

    name: str
    rows: int
    dead: int
    bytes: int


class Sizes(msgspec.Struct, frozen=True):
    """Bytes in all, of them free ones inside the file, those of the write-ahead log beside it, and the tables."""

    bytes: int
    free_bytes: int | None
    log_bytes: int | None
    tables: list[TableSize]


def read_sizes(store: Store, path: Path | None) -> Op[Sizes]:
    """Read what the database says of its own size; `path` is its file, if it has one."""
    document = yield from store.vitals.document()
    vitals: dict[str, Any] = msgspec.json.decode(document)
    if store.dialect == "sqlite":
        page = vitals["page_size"]
        return Sizes(vitals["pages"] * page, vitals["free_pages"] * page, _log_bytes(path), [])
    tables = [
        TableSize(each["name"], each["live"], each["dead"], each["bytes"])
        for each in vitals["tables"]
    ]
    tables.sort(key=lambda each: -each.bytes)
    return Sizes(sum(each.bytes for each in tables), None, None, tables)


def _log_bytes(path: Path | None) -> int:
    """Return the size of the write-ahead log, which goes with the last connection."""
    log = None if path is None else path.with_name(f"{path.name}-wal")
    return log.stat().st_size if log is not None and log.exists() else 0
