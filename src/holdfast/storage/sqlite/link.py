"""A worker's way to the database for one purpose: its operations join the process's one writer."""

from __future__ import annotations

from typing import Protocol, TypeVar

from holdfast.storage.statement import Op

T = TypeVar("T")


class WriteAsync(Protocol):
    """Runs an operation through the writer."""

    async def __call__(self, op: Op[T], wait_s: float, limit_s: float) -> T: ...


class SqliteLink:
    """See `storage.database.Link`. There is no connection of its own to lose or to close."""

    def __init__(self, write: WriteAsync, purpose: str, statement_timeout_ms: int) -> None:
        self.purpose = purpose
        self._write = write
        self._limit_s = statement_timeout_ms / 1000

    async def run(self, op: Op[T]) -> T:
        return await self._write(op, self._limit_s, self._limit_s)

    async def run_atomic(self, op: Op[T]) -> T:
        # The writer runs every operation in a transaction.
        return await self._write(op, self._limit_s, self._limit_s)

    async def close(self) -> None:
        pass
