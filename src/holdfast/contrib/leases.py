"""Leases for rows of your own tables: claimed, renewed, finished and reaped under the rules that jobs follow.

The table has three columns: locked_by (text), lock_token (text or uuid) and locked_until (timestamptz; on SQLite an
integer of microseconds since the epoch). A row with a token belongs to the claim that bears it; whoever finishes it
presents the token, and a row that was taken away in the meantime is not changed.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.contrib.lease_statements import LeaseStatements, Sql, check_names
from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import InvalidOption
from holdfast.core.records import Instant
from holdfast.storage.database import AsyncTransaction, Transaction
from holdfast.storage.id_generator import new_id

T = TypeVar("T")
Rows = list[dict[str, Any]]
Steps = Generator[Sql, Rows, T]

DEFAULT_LEASE = "60s"


@dataclass(frozen=True, slots=True)
class Claimed:
    """What one claim took: rows by column name, under one token."""

    token: str
    rows: Rows


class LeasedTable:
    """Leases rows in transactions of Holdfast's own; `aio` does the same in async ones."""

    def __init__(self, table: str, *, due: str, key: str = "id", order: str | None = None) -> None:
        """Name the table, its primary key, which free rows are due and in which order, both as SQL of your own.

        Raises: InvalidIdentifier.
        """
        check_names(table, key)
        self._steps = _LeaseSteps(LeaseStatements(table, key, due, order or f'"{key}"'), key)
        self.aio = AsyncLeasedTable(self._steps)

    def claim(
        self,
        tx: Transaction,
        owner: str,
        limit: int = 100,
        lease: Duration = DEFAULT_LEASE,
        now: Instant | None = None,
    ) -> Claimed:
        """Take due rows that nobody holds, in order; two claims never get the same row."""
        return _run(self._steps.claim(_dialect(tx), owner, limit, lease, now), tx)

    def renew(
        self,
        tx: Transaction,
        token: str,
        lease: Duration = DEFAULT_LEASE,
        now: Instant | None = None,
    ) -> set[Any]:
        """Extend a claim; return the keys it still holds."""
        return _run(self._steps.renew(_dialect(tx), token, lease, now), tx)

    def finish(
        self, tx: Transaction, token: str, outcomes: Mapping[Any, Mapping[str, Any]]
    ) -> set[Any]:
        """Change rows by key and let go of them; return those that the claim still held."""
        return _run(self._steps.finish(_dialect(tx), token, outcomes), tx)

    def release(self, tx: Transaction, token: str) -> set[Any]:
        """Give back everything that a claim still holds; return the keys."""
        return _run(self._steps.release(_dialect(tx), token), tx)

    def reap(
        self,
        tx: Transaction,
        limit: int = 100,
        values: Mapping[str, Any] | None = None,
        now: Instant | None = None,
    ) -> set[Any]:
        """Free rows whose lease has expired, oldest first, changing columns along with it; return the keys."""
        return _run(self._steps.reap(_dialect(tx), limit, values, now), tx)


class AsyncLeasedTable:
    """See `LeasedTable`."""

    def __init__(self, steps: _LeaseSteps) -> None:
        self._steps = steps

    async def claim(
        self,
        tx: AsyncTransaction,
        owner: str,
        limit: int = 100,
        lease: Duration = DEFAULT_LEASE,
        now: Instant | None = None,
    ) -> Claimed:
        """See `LeasedTable.claim`."""
        return await _run_async(self._steps.claim(_dialect(tx), owner, limit, lease, now), tx)

    async def renew(
        self,
        tx: AsyncTransaction,
        token: str,
        lease: Duration = DEFAULT_LEASE,
        now: Instant | None = None,
    ) -> set[Any]:
        """See `LeasedTable.renew`."""
        return await _run_async(self._steps.renew(_dialect(tx), token, lease, now), tx)

    async def finish(
        self, tx: AsyncTransaction, token: str, outcomes: Mapping[Any, Mapping[str, Any]]
    ) -> set[Any]:
        """See `LeasedTable.finish`."""
        return await _run_async(self._steps.finish(_dialect(tx), token, outcomes), tx)

    async def release(self, tx: AsyncTransaction, token: str) -> set[Any]:
        """See `LeasedTable.release`."""
        return await _run_async(self._steps.release(_dialect(tx), token), tx)

    async def reap(
        self,
        tx: AsyncTransaction,
        limit: int = 100,
        values: Mapping[str, Any] | None = None,
        now: Instant | None = None,
    ) -> set[Any]:
        """See `LeasedTable.reap`."""
        return await _run_async(self._steps.reap(_dialect(tx), limit, values, now), tx)


class _LeaseSteps:
    """The operations without colour."""

    def __init__(self, statements: LeaseStatements, key: str) -> None:
        self._statements = statements
        self._key = key

    def claim(
        self, dialect: str, owner: str, limit: int, lease: Duration, now: Instant | None
    ) -> Steps[Claimed]:
        token = new_id()
        params = {
            "owner": owner,
            "token": token,
            "limit": _positive(limit),
            "lease_ms": _positive(milliseconds(lease)),
            "now": now,
        }
        rows = yield self._statements.make(dialect, "claim", params)
        if dialect != "postgresql":
            rows = yield self._statements.make(dialect, "claimed", {"token": token})
        return Claimed(token, rows)

    def renew(
        self, dialect: str, token: str, lease: Duration, now: Instant | None
    ) -> Steps[set[Any]]:
        params = {"token": token, "lease_ms": _positive(milliseconds(lease)), "now": now}
        return self._keys((yield self._statements.make(dialect, "renew", params)))

    def finish(
        self, dialect: str, token: str, outcomes: Mapping[Any, Mapping[str, Any]]
    ) -> Steps[set[Any]]:
        accepted: set[Any] = set()
        for key, values in outcomes.items():
            params = {"token": token, "key": key}
            rows = yield self._statements.make(dialect, "finish", params, values)
            accepted |= self._keys(rows)
        return accepted

    def release(self, dialect: str, token: str) -> Steps[set[Any]]:
        return self._keys((yield self._statements.make(dialect, "release", {"token": token})))

    def reap(
        self, dialect: str, limit: int, values: Mapping[str, Any] | None, now: Instant | None
    ) -> Steps[set[Any]]:
        params = {"limit": _positive(limit), "now": now}
        return self._keys((yield self._statements.make(dialect, "reap", params, values)))

    def _keys(self, rows: Rows) -> set[Any]:
        return {row[self._key] for row in rows}


def _positive(number: int) -> int:
    if number < 1:
        raise InvalidOption(f"{number} is too small, the least is 1")
    return number


def _dialect(tx: object) -> str:
    return "sqlite" if "sqlite" in type(tx).__module__ else "postgresql"


def _run(steps: Steps[T], tx: Transaction) -> T:
    try:
        statement = next(steps)
        while True:
            cursor = tx.execute(statement.text, dict(statement.params))
            rows = cursor.fetchall() if cursor.description else []
            statement = steps.send(_named(cursor.description, rows))
    except StopIteration as end:
        result: T = end.value
        return result


async def _run_async(steps: Steps[T], tx: AsyncTransaction) -> T:
    try:
        statement = next(steps)
        while True:
            cursor = await tx.execute(statement.text, dict(statement.params))
            rows = await cursor.fetchall() if cursor.description else []
            statement = steps.send(_named(cursor.description, rows))
    except StopIteration as end:
        result: T = end.value
        return result


def _named(description: Any, rows: list[Any]) -> Rows:
    names = [column[0] for column in description or ()]
    return [dict(zip(names, row, strict=True)) for row in rows]
