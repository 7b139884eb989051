"""Leases for rows of your own tables: claimed, renewed, finished and reaped by the rules that jobs follow.

The table has three columns: locked_by (text), lock_token (text or uuid) and locked_until (timestamptz; on SQLite an
integer of microseconds since the epoch). A row with a token belongs to the claim with that token: finishing a row needs
the token, and a row that was taken away in the meantime is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import InvalidIdentifier, InvalidOption
from holdfast.core.records import Instant
from holdfast.storage.database import AsyncTransaction, Transaction
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op, Row, Statement, run, run_async

DEFAULT_LEASE = "60s"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PARAMETER = re.compile(r":(\w+)")

_STATEMENTS: Mapping[str, str] = {
    "renew": "update {table} set locked_until = {until} where lock_token = :token returning {key}",
    "finish": """
update {table} set {changes} locked_by = null, lock_token = null, locked_until = null
 where {key} = :key and lock_token = :token
returning {key}""",
    "release": """
update {table} set locked_by = null, lock_token = null, locked_until = null
 where lock_token = :token
returning {key}""",
    "reap": """
update {table} set {changes} locked_by = null, lock_token = null, locked_until = null
 where {key} in (
   select {key} from {table} where lock_token is not null and locked_until <= {now}
    order by locked_until limit :limit {skip_locked})
returning {key}""",
}

# A write transaction of SQLite is alone, so there are no locked rows to skip; its updates return rows in no order.
_DIALECTS: Mapping[str, Mapping[str, str]] = {
    "postgresql": {
        **_STATEMENTS,
        "claim": """
with due as (
  select {key} from {table} where lock_token is null and ({due})
   order by {order} limit :limit {skip_locked}),
locked as (
  update {table} t set locked_by = :owner, lock_token = :token, locked_until = {until}
    from due where t.{key} = due.{key}
  returning t.*)
select * from locked order by {order}""",
        "{now}": "coalesce(to_timestamp(cast(:now as bigint) / 1000000.0), statement_timestamp())",
        "{lease}": ":lease_ms * interval '1 ms'",
        "{skip_locked}": "for update skip locked",
    },
    "sqlite": {
        **_STATEMENTS,
        "claim": """
update {table} set locked_by = :owner, lock_token = :token, locked_until = {until}
 where {key} in (select {key} from {table} where lock_token is null and ({due}) order by {order} limit :limit)""",
        "claimed": "select * from {table} where lock_token = :token order by {order}",
        "{now}": "coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)",
        "{lease}": ":lease_ms * 1000",
        "{skip_locked}": "",
    },
}


@dataclass(frozen=True, slots=True)
class Claimed:
    """What one claim took: rows by column name, under one token."""

    token: str
    rows: list[dict[str, Any]]


class LeasedTable:
    """Leases rows in transactions of Holdfast's own; `aio` does the same in async ones."""

    def __init__(self, table: str, *, due: str, key: str = "id", order: str | None = None) -> None:
        """Name the table, its primary key, which free rows are due and in which order, both as SQL of your own.

        Raises: InvalidIdentifier.
        """
        self._operations = _Operations(table, key, due, order)
        self.aio = AsyncLeasedTable(self._operations)

    def claim(
        self,
        tx: Transaction,
        owner: str,
        limit: int = 100,
        lease: Duration = DEFAULT_LEASE,
        now: Instant | None = None,
    ) -> Claimed:
        """Take due rows that are not leased, in order; two claims never get the same row."""
        on = _Executor(tx)
        return run(self._operations.claim(on, owner, limit, lease, now), on)

    def renew(
        self,
        tx: Transaction,
        token: str,
        lease: Duration = DEFAULT_LEASE,
        now: Instant | None = None,
    ) -> set[Any]:
        """Extend a claim; return the keys it still holds."""
        on = _Executor(tx)
        return run(self._operations.renew(on, token, lease, now), on)

    def finish(
        self, tx: Transaction, token: str, outcomes: Mapping[Any, Mapping[str, Any]]
    ) -> set[Any]:
        """Change rows by key and release them; return those that the claim still held."""
        on = _Executor(tx)
        return run(self._operations.finish(on, token, outcomes), on)

    def release(self, tx: Transaction, token: str) -> set[Any]:
        """Release everything that a claim still holds; return the keys."""
        on = _Executor(tx)
        return run(self._operations.release(on, token), on)

    def reap(
        self,
        tx: Transaction,
        limit: int = 100,
        values: Mapping[str, Any] | None = None,
        now: Instant | None = None,
    ) -> set[Any]:
        """Free rows whose lease has expired, oldest first, and change columns with it; return the keys."""
        on = _Executor(tx)
        return run(self._operations.reap(on, limit, values, now), on)


class AsyncLeasedTable:
    """Async version of `LeasedTable`."""

    def __init__(self, operations: _Operations) -> None:
        self._operations = operations

    async def claim(
        self,
        tx: AsyncTransaction,
        owner: str,
        limit: int = 100,
        lease: Duration = DEFAULT_LEASE,
        now: Instant | None = None,
    ) -> Claimed:
        """See `LeasedTable.claim`."""
        on = _AsyncExecutor(tx)
        return await run_async(self._operations.claim(on, owner, limit, lease, now), on)

    async def renew(
        self,
        tx: AsyncTransaction,
        token: str,
        lease: Duration = DEFAULT_LEASE,
        now: Instant | None = None,
    ) -> set[Any]:
        """See `LeasedTable.renew`."""
        on = _AsyncExecutor(tx)
        return await run_async(self._operations.renew(on, token, lease, now), on)

    async def finish(
        self, tx: AsyncTransaction, token: str, outcomes: Mapping[Any, Mapping[str, Any]]
    ) -> set[Any]:
        """See `LeasedTable.finish`."""
        on = _AsyncExecutor(tx)
        return await run_async(self._operations.finish(on, token, outcomes), on)

    async def release(self, tx: AsyncTransaction, token: str) -> set[Any]:
        """See `LeasedTable.release`."""
        on = _AsyncExecutor(tx)
        return await run_async(self._operations.release(on, token), on)

    async def reap(
        self,
        tx: AsyncTransaction,
        limit: int = 100,
        values: Mapping[str, Any] | None = None,
        now: Instant | None = None,
    ) -> set[Any]:
        """See `LeasedTable.reap`."""
        on = _AsyncExecutor(tx)
        return await run_async(self._operations.reap(on, limit, values, now), on)


class _TransactionExecutor:
    """Runs operations whose statements are SQL, not names of a catalogue; keeps the columns of the last answer."""

    columns: list[str]

    def __init__(self, tx: Any) -> None:
        self._tx = tx
        self.dialect = "sqlite" if "sqlite" in type(tx).__module__ else "postgresql"

    def keep_columns(self, description: Any) -> None:
        self.columns = [column[0] for column in description or ()]


class _Executor(_TransactionExecutor):
    def execute(self, statement: Statement) -> list[Row]:
        cursor = self._tx.execute(statement.name, dict(statement.params))
        self.keep_columns(cursor.description)
        return list(cursor.fetchall()) if cursor.description else []


class _AsyncExecutor(_TransactionExecutor):
    async def execute(self, statement: Statement) -> list[Row]:
        cursor = await self._tx.execute(statement.name, dict(statement.params))
        self.keep_columns(cursor.description)
        return list(await cursor.fetchall()) if cursor.description else []


class _Operations:
    """The operations on one table. `due` and `order` are the application's own SQL and must not hold input."""

    def __init__(self, table: str, key: str, due: str, order: str | None) -> None:
        if table.count(".") > 1:
            raise InvalidIdentifier(f"{table[:70]!r} has too many dots")
        self._table = ".".join(map(_quote, table.split(".")))
        self._key = _quote(key)
        self._due = due
        self._order = order or self._key

    def claim(
        self,
        on: _TransactionExecutor,
        owner: str,
        limit: int,
        lease: Duration,
        now: Instant | None,
    ) -> Op[Claimed]:
        token = new_id()
        params = {
            "owner": owner,
            "token": token,
            "limit": _positive(limit),
            "lease_ms": _positive(milliseconds(lease)),
            "now": now,
        }
        rows = yield self._statement(on.dialect, "claim", params)
        if on.dialect == "sqlite":
            rows = yield self._statement(on.dialect, "claimed", {"token": token})
        return Claimed(token, [dict(zip(on.columns, row, strict=True)) for row in rows])

    def renew(
        self, on: _TransactionExecutor, token: str, lease: Duration, now: Instant | None
    ) -> Op[set[Any]]:
        params = {"token": token, "lease_ms": _positive(milliseconds(lease)), "now": now}
        return _keys((yield self._statement(on.dialect, "renew", params)))

    def finish(
        self, on: _TransactionExecutor, token: str, outcomes: Mapping[Any, Mapping[str, Any]]
    ) -> Op[set[Any]]:
        accepted: set[Any] = set()
        for key, values in outcomes.items():
            params = {"token": token, "key": key}
            accepted |= _keys((yield self._statement(on.dialect, "finish", params, values)))
        return accepted

    def release(self, on: _TransactionExecutor, token: str) -> Op[set[Any]]:
        return _keys((yield self._statement(on.dialect, "release", {"token": token})))

    def reap(
        self,
        on: _TransactionExecutor,
        limit: int,
        values: Mapping[str, Any] | None,
        now: Instant | None,
    ) -> Op[set[Any]]:
        params = {"limit": _positive(limit), "now": now}
        return _keys((yield self._statement(on.dialect, "reap", params, values)))

    def _statement(
        self,
        dialect: str,
        name: str,
        params: Mapping[str, Any],
        values: Mapping[str, Any] | None = None,
    ) -> Statement:
        """Put the table's names into a statement of the dialect; `values` are columns to change with it."""
        templates = _DIALECTS[dialect]
        given = {f"value_{place}": value for place, value in enumerate((values or {}).values())}
        changes = "".join(
            f"{_quote(column)} = :{parameter}, "
            for column, parameter in zip(values or {}, given, strict=True)
        )
        text = templates[name]
        for mark, piece in (
            ("{until}", "{now} + {lease}"),
            *((mark, templates[mark]) for mark in ("{now}", "{lease}", "{skip_locked}")),
            ("{changes}", changes),
        ):
            text = text.replace(mark, piece)
        due, order = self._due, self._order
        if dialect == "postgresql":
            text = _PARAMETER.sub(r"%(\1)s", text)
            # In a text with parameters the driver takes a percent sign for one.
            due, order = due.replace("%", "%%"), order.replace("%", "%%")
        for mark, piece in (
            ("{table}", self._table),
            ("{key}", self._key),
            ("{order}", order),
            ("{due}", due),
        ):
            text = text.replace(mark, piece)
        return Statement(text, {**params, **given})


def _keys(rows: list[Row]) -> set[Any]:
    return {row[0] for row in rows}


def _quote(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidIdentifier(
            f"{name[:70]!r} is not the name of a table or column",
            help="use letters, digits and underscores; a table may have a schema before a dot",
        )
    return f'"{name}"'


def _positive(number: int) -> int:
    if number < 1:
        raise InvalidOption(f"{number} is too small, the least is 1")
    return number
