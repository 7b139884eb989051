"""A set that may be larger than memory, for one export."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Self


class Seen:
    """Values by their digests, in a temporary file; it is opened when the first value comes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "seen.db"
        self._file: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def __bool__(self) -> bool:
        return self._file is not None

    def add(self, values: Iterable[object]) -> None:
        """Add values."""
        if self._file is None:
            self._file = sqlite3.connect(self._path, isolation_level=None)
            self._file.execute("pragma journal_mode = off")
            self._file.execute("pragma synchronous = off")
            self._file.execute("create table seen (digest blob primary key) without rowid")
            self._file.execute("begin")
        rows = ((_digest(each),) for each in values)
        self._file.executemany("insert or ignore into seen values (?)", rows)

    def __contains__(self, value: object) -> bool:
        if self._file is None:
            return False
        found = self._file.execute("select 1 from seen where digest = ?", (_digest(value),))
        with closing(found):
            return found.fetchone() is not None


def _digest(value: object) -> bytes:
    return blake2b(repr(value).encode("utf-8", "surrogateescape"), digest_size=16).digest()
