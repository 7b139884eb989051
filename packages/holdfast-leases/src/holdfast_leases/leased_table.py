"""Leases for rows of your own tables: claimed, renewed, finished and reaped by the rules that jobs follow.

The table has three columns: locked_by (text), lock_token (text or uuid) and locked_until (timestamptz; on SQLite an
integer of microseconds since the epoch). A row with a token belongs to the claim with that token: finishing a row needs
the token, and a row that was taken away in the meantime is not changed. With two more columns, rows are retried by a
backoff; `keep` renews a claim while it is worked on.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.client.adapters.base import AsyncTx, SyncTx
from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import InvalidOption, UnsupportedConnection
from holdfast.core.instants import Instant, to_datetime, to_instant
from holdfast.core.retry import PUSH_BACKOFF, Retry
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op, Row, Statement, run, run_async
from holdfast.storage.sql_loader import quote, quote_table
from holdfast_leases.kept_rows import AsyncKeptRows, KeptRows, Renewal, TransactionSource

__all__ = [
    "PUSH_BACKOFF",
    "AsyncLeasedTable",
    "Claimed",
    "LeasedTable",
    "Retried",
    "RowRetry",
    "to_datetime",
    "to_instant",
]

DEFAULT_LEASE = "60s"

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
   select {key} from {table} where lock_token is not null and locked_until <= {now} {queue}
    order by locked_until limit :limit {skip_locked})
returning {key}""",
    "held": "select {key}, coalesce({attempts}, 0) from {table} where lock_token = :token {for_update}",
    "expired": """
select {key}, coalesce({attempts}, 0), lock_token
  from {table} where lock_token is not null and locked_until <= {now} {queue}
 order by locked_until limit :limit {skip_locked}""",
}

# A write transaction of SQLite is alone, so there are no locked rows to skip; its updates return rows in no order.
_DIALECTS: Mapping[str, Mapping[str, str]] = {
    "postgresql": {
        **_STATEMENTS,
        "claim": """
with due as (
  select {key} from {table} where lock_token is null and ({due}) {queue} {ready}
   order by {order} limit :limit {skip_locked}),
locked as (
  update {table} t set locked_by = :owner, lock_token = :token, locked_until = {until}
    from due where t.{key} = due.{key}
  returning t.*)
select * from locked order by {order}""",
        "{now}": "coalesce(to_timestamp(cast(:now as bigint) / 1000000.0), statement_timestamp())",
        "{lease}": ":lease_ms * interval '1 ms'",
        "{delay}": ":delay_ms * interval '1 ms'",
        "{skip_locked}": "for update skip locked",
        "{for_update}": "for update",
    },
    "sqlite": {
        **_STATEMENTS,
        "claim": """
update {table} set locked_by = :owner, lock_token = :token, locked_until = {until}
 where {key} in (
   select {key} from {table} where lock_token is null and ({due}) {queue} {ready} order by {order} limit :limit)""",
        "claimed": "select * from {table} where lock_token = :token order by {order}",
        "{now}": "coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)",
        "{lease}": ":lease_ms * 1000",
        "{delay}": ":delay_ms * 1000",
        "{skip_locked}": "",
        "{for_update}": "",
    },
}


@dataclass(frozen=True, slots=True)
class Claimed:
    """What one claim took: rows by column name, under one token."""

    token: str
    rows: list[dict[str, Any]]
    lease_ms: int = milliseconds(DEFAULT_LEASE)


@dataclass(frozen=True, slots=True)
class RowRetry:
    """How rows are retried: a column that counts attempts, one that delays the next, and the policy they follow.

    The first is an integer; the second has the type of locked_until and is null for a row that need not wait.
    """

    attempts: str
    next_at: str
    policy: Retry = PUSH_BACKOFF


@dataclass(frozen=True, slots=True)
class Retried:
    """The keys of rows that will be due again, and of those that had their last attempt."""

    delayed: set[Any]
    exhausted: set[Any]


class LeasedTable:
    """Leases rows in Holdfast's transactions or in your own; `aio` does the same in async ones."""

    def __init__(
        self,
        table: str,
        *,
        due: str,
        key: str = "id",
        order: str | None = None,
        where: str | None = None,
        retry: RowRetry | None = None,
    ) -> None:
        """Name the table, its primary key, which free rows are due and in which order, both as SQL of your own.

        `where`, SQL as well, are the rows that claims and reaping are about, if several queues share the table.
        With `retry`, a row that waits for its next attempt is not due, and each outcome counts an attempt.
        Raises: InvalidIdentifier.
        """
        self._operations = _Operations(table, key, due, order, where, retry)
        self.aio = AsyncLeasedTable(self._operations, self._renewal)

    def claim(
        self,
        tx: SyncTx,
        owner: str,
        limit: int = 100,
        lease: Duration = DEFAULT_LEASE,
        now: Instant | None = None,
    ) -> Claimed:
        """Take due rows that are not leased, in order; two claims never get the same row."""
        on = _Executor.of(tx)
        return run(self._operations.claim(on, owner, limit, lease, now), on)

    def renew(
        self, tx: SyncTx, token: str, lease: Duration = DEFAULT_LEASE, now: Instant | None = None
    ) -> set[Any]:
        """Extend a claim; return the keys it still holds."""
        on = _Executor.of(tx)
        return run(self._operations.renew(on, token, lease, now), on)

    def finish(self, tx: SyncTx, token: str, outcomes: Mapping[Any, Mapping[str, Any]]) -> set[Any]:
        """Change rows by key and release them; return those that the claim still held."""
        on = _Executor.of(tx)
        return run(self._operations.finish(on, token, outcomes), on)

    def retry(
        self,
        tx: SyncTx,
        token: str,
        outcomes: Mapping[Any, Mapping[str, Any]],
        exhausted: Mapping[str, Any] | None = None,
        at_least: Duration = 0,
        now: Instant | None = None,
    ) -> Retried:
        """Change rows by key and make them due again after the backoff, or after `at_least` if that is longer.

        A row that has used its last attempt also gets `exhausted` and no next attempt. Rows the claim lost are in
        neither set. Raises: InvalidOption if the table has no `retry`.
        """
        on = _Executor.of(tx)
        return run(self._operations.retry(on, token, outcomes, exhausted, at_least, now), on)

    def release(self, tx: SyncTx, token: str) -> set[Any]:
        """Release everything that a claim still holds; return the keys."""
        on = _Executor.of(tx)
        return run(self._operations.release(on, token), on)

    def reap(
        self,
        tx: SyncTx,
        limit: int = 100,
        values: Mapping[str, Any] | None = None,
        now: Instant | None = None,
        exhausted: Mapping[str, Any] | None = None,
    ) -> set[Any]:
        """Free rows whose lease has expired, oldest first, and change columns with it; return the keys.

        With `retry`, that counts an attempt: the row waits, or gets `exhausted` as well if it was the last.
        """
        on = _Executor.of(tx)
        return run(self._operations.reap(on, limit, values, now, exhausted), on)

    def keep(
        self,
        source: TransactionSource,
        claimed: Claimed,
        on_lost: Callable[[frozenset[Any]], object] | None = None,
    ) -> KeptRows:
        """Return a context manager that renews a claim in the background while its block works.

        `source` opens the transactions: the run of a cycle, whose abort also ends the renewals, or the application.
        """
        return KeptRows(self, claimed.token, self._renewal(source, claimed, on_lost))

    def _renewal(
        self,
        source: TransactionSource,
        claimed: Claimed,
        on_lost: Callable[[frozenset[Any]], object] | None,
    ) -> Renewal:
        def renew() -> set[Any]:
            with source.transaction() as tx:
                return self.renew(tx, claimed.token, claimed.lease_ms)

        return Renewal(renew, source, self._operations.keys_of(claimed), claimed.lease_ms, on_lost)


class AsyncLeasedTable:
    """Async version of `LeasedTable`."""

    def __init__(self, operations: _Operations, renewal: Callable[..., Renewal]) -> None:
        self._operations = operations
        self._renewal = renewal

    async def claim(
        self,
        tx: AsyncTx,
        owner: str,
        limit: int = 100,
        lease: Duration = DEFAULT_LEASE,
        now: Instant | None = None,
    ) -> Claimed:
        """See `LeasedTable.claim`."""
        on = await _AsyncExecutor.of(tx)
        return await run_async(self._operations.claim(on, owner, limit, lease, now), on)

    async def renew(
        self, tx: AsyncTx, token: str, lease: Duration = DEFAULT_LEASE, now: Instant | None = None
    ) -> set[Any]:
        """See `LeasedTable.renew`."""
        on = await _AsyncExecutor.of(tx)
        return await run_async(self._operations.renew(on, token, lease, now), on)

    async def finish(
        self, tx: AsyncTx, token: str, outcomes: Mapping[Any, Mapping[str, Any]]
    ) -> set[Any]:
        """See `LeasedTable.finish`."""
        on = await _AsyncExecutor.of(tx)
        return await run_async(self._operations.finish(on, token, outcomes), on)

    async def retry(
        self,
        tx: AsyncTx,
        token: str,
        outcomes: Mapping[Any, Mapping[str, Any]],
        exhausted: Mapping[str, Any] | None = None,
        at_least: Duration = 0,
        now: Instant | None = None,
    ) -> Retried:
        """See `LeasedTable.retry`."""
        on = await _AsyncExecutor.of(tx)
        op = self._operations.retry(on, token, outcomes, exhausted, at_least, now)
        return await run_async(op, on)

    async def release(self, tx: AsyncTx, token: str) -> set[Any]:
        """See `LeasedTable.release`."""
        on = await _AsyncExecutor.of(tx)
        return await run_async(self._operations.release(on, token), on)

    async def reap(
        self,
        tx: AsyncTx,
        limit: int = 100,
        values: Mapping[str, Any] | None = None,
        now: Instant | None = None,
        exhausted: Mapping[str, Any] | None = None,
    ) -> set[Any]:
        """See `LeasedTable.reap`."""
        on = await _AsyncExecutor.of(tx)
        return await run_async(self._operations.reap(on, limit, values, now, exhausted), on)

    def keep(
        self,
        source: TransactionSource,
        claimed: Claimed,
        on_lost: Callable[[frozenset[Any]], object] | None = None,
    ) -> AsyncKeptRows:
        """See `LeasedTable.keep`; `on_lost` is called in another thread."""
        return AsyncKeptRows(self, claimed.token, self._renewal(source, claimed, on_lost))


class _TransactionExecutor:
    """Runs operations whose statements are SQL, not names of a catalogue; keeps the columns of the last answer."""

    columns: list[str]

    def __init__(self, connection: Any) -> None:
        """Take our own transaction or a driver's connection. Raises: UnsupportedConnection."""
        if not any(_is_of_library(connection, each) for each in _LIBRARIES):
            raise UnsupportedConnection(
                f"rows cannot be leased through {type(connection).__qualname__}",
                help="use app.transaction(), or psycopg, sqlite3 or aiosqlite, with or without SQLAlchemy",
            )
        self._connection = connection
        self.dialect = "sqlite" if "sqlite" in type(connection).__module__ else "postgresql"

    def rows_of(self, cursor: Any, rows: Iterable[Any]) -> list[Row]:
        """Return rows as tuples, whatever row factory the connection has."""
        self.columns = [column[0] for column in cursor.description or ()]
        return [tuple(row.values() if isinstance(row, Mapping) else row) for row in rows]


_LIBRARIES = ("holdfast", "psycopg", "sqlite3", "aiosqlite")


def _is_of_library(connection: Any, library: str) -> bool:
    """Whether a connection is of a library, or of a class made from one of it; imports nothing."""
    return any(f"{each.__module__}.".startswith(f"{library}.") for each in type(connection).__mro__)


class _Executor(_TransactionExecutor):
    @classmethod
    def of(cls, tx: Any) -> _Executor:
        if not _is_of_library(tx, "sqlalchemy"):
            return cls(tx)
        from holdfast_leases.driver_connections import driver_below

        return cls(driver_below(tx))

    def execute(self, statement: Statement) -> list[Row]:
        cursor = self._connection.execute(statement.name, dict(statement.params))
        return self.rows_of(cursor, cursor.fetchall() if cursor.description else ())


class _AsyncExecutor(_TransactionExecutor):
    @classmethod
    async def of(cls, tx: Any) -> _AsyncExecutor:
        if not _is_of_library(tx, "sqlalchemy"):
            return cls(tx)
        from holdfast_leases.driver_connections import driver_below_async

        return cls(await driver_below_async(tx))

    async def execute(self, statement: Statement) -> list[Row]:
        cursor = await self._connection.execute(statement.name, dict(statement.params))
        return self.rows_of(cursor, await cursor.fetchall() if cursor.description else ())


class _Operations:
    """The operations on one table. `due`, `order` and `where` are the application's own SQL and must not hold input."""

    def __init__(
        self,
        table: str,
        key: str,
        due: str,
        order: str | None,
        where: str | None,
        retry: RowRetry | None,
    ) -> None:
        self._table = quote_table(table)
        self._key_name = key
        self._key = quote(key)
        self._due = due
        self._order = order or self._key
        self._queue = "" if where is None else f"and ({where})"
        self._retry = retry
        self._attempts = self._next_at = self._ready = ""
        if retry is not None:
            self._attempts, self._next_at = quote(retry.attempts), quote(retry.next_at)
            self._ready = f"and ({self._next_at} is null or {self._next_at} <= {{now}})"

    def keys_of(self, claimed: Claimed) -> frozenset[Any]:
        return frozenset(row[self._key_name] for row in claimed.rows)

    def claim(
        self, on: _TransactionExecutor, owner: str, limit: int, lease: Duration, now: Instant | None
    ) -> Op[Claimed]:
        token = new_id()
        lease_ms = _positive(milliseconds(lease))
        params = {
            "owner": owner,
            "token": token,
            "limit": _positive(limit),
            "lease_ms": lease_ms,
            "now": now,
        }
        rows = yield self._statement(on.dialect, "claim", params)
        if on.dialect == "sqlite":
            rows = yield self._statement(on.dialect, "claimed", {"token": token})
        return Claimed(token, [dict(zip(on.columns, row, strict=True)) for row in rows], lease_ms)

    def renew(
        self, on: _TransactionExecutor, token: str, lease: Duration, now: Instant | None
    ) -> Op[set[Any]]:
        params = {"token": token, "lease_ms": _positive(milliseconds(lease)), "now": now}
        return _keys((yield self._statement(on.dialect, "renew", params)))

    def finish(
        self, on: _TransactionExecutor, token: str, outcomes: Mapping[Any, Mapping[str, Any]]
    ) -> Op[set[Any]]:
        counted = ""
        if self._retry is not None:
            counted = (
                f"{self._attempts} = coalesce({self._attempts}, 0) + 1, {self._next_at} = null, "
            )
        accepted: set[Any] = set()
        for key, values in outcomes.items():
            params = {"token": token, "key": key}
            accepted |= _keys(
                (yield self._statement(on.dialect, "finish", params, values, counted))
            )
        return accepted

    def retry(
        self,
        on: _TransactionExecutor,
        token: str,
        outcomes: Mapping[Any, Mapping[str, Any]],
        exhausted: Mapping[str, Any] | None,
        at_least: Duration,
        now: Instant | None,
    ) -> Op[Retried]:
        policy = self._policy()
        least_ms = milliseconds(at_least)
        rows = yield self._statement(on.dialect, "held", {"token": token})
        # By text, as finishing takes the id of a row as the database does: a UUID or its text.
        wanted = {str(key): values for key, values in outcomes.items()}
        retried = Retried(set(), set())
        for key, attempts in rows:
            if str(key) not in wanted:
                continue
            delay_ms = _delay_ms(policy, attempts + 1)
            waits_ms = None if delay_ms is None else max(delay_ms, least_ms)
            values = {**wanted[str(key)], **(exhausted or {} if waits_ms is None else {})}
            yield self._delay(on.dialect, token, key, values, attempts + 1, waits_ms, now)
            (retried.exhausted if waits_ms is None else retried.delayed).add(key)
        return retried

    def release(self, on: _TransactionExecutor, token: str) -> Op[set[Any]]:
        return _keys((yield self._statement(on.dialect, "release", {"token": token})))

    def reap(
        self,
        on: _TransactionExecutor,
        limit: int,
        values: Mapping[str, Any] | None,
        now: Instant | None,
        exhausted: Mapping[str, Any] | None,
    ) -> Op[set[Any]]:
        params = {"limit": _positive(limit), "now": now}
        if self._retry is None and exhausted is None:
            return _keys((yield self._statement(on.dialect, "reap", params, values)))
        policy = self._policy()
        rows = yield self._statement(on.dialect, "expired", params)
        for key, attempts, token in rows:
            waits_ms = _delay_ms(policy, attempts + 1)
            changes = {**(values or {}), **(exhausted or {} if waits_ms is None else {})}
            yield self._delay(on.dialect, token, key, changes, attempts + 1, waits_ms, now)
        return _keys(rows)

    def _policy(self) -> Retry:
        if self._retry is None:
            raise InvalidOption(
                f"the table {self._table} has no columns for retries",
                help='give LeasedTable retry=RowRetry("attempts", "next_at")',
            )
        return self._retry.policy

    def _delay(
        self,
        dialect: str,
        token: str,
        key: Any,
        values: Mapping[str, Any],
        attempts: int,
        waits_ms: int | None,
        now: Instant | None,
    ) -> Statement:
        """Release a row after a counted attempt; without a wait it has no next one."""
        params: dict[str, Any] = {"token": token, "key": key, "attempts": attempts}
        next_at = "null"
        if waits_ms is not None:
            next_at = "{now} + {delay}"
            params |= {"delay_ms": waits_ms, "now": now}
        counted = f"{self._attempts} = :attempts, {self._next_at} = {next_at}, "
        return self._statement(dialect, "finish", params, values, counted)

    def _statement(
        self,
        dialect: str,
        name: str,
        params: Mapping[str, Any],
        values: Mapping[str, Any] | None = None,
        counted: str = "",
    ) -> Statement:
        """Put the table's names into a statement of the dialect.

        `values` are columns to change with it, `counted` those of the retry.
        """
        templates = _DIALECTS[dialect]
        given = {f"value_{place}": value for place, value in enumerate((values or {}).values())}
        changes = "".join(
            f"{quote(column)} = :{parameter}, "
            for column, parameter in zip(values or {}, given, strict=True)
        )
        text = templates[name]
        pieces = {
            "{changes}": changes + counted,
            "{until}": "{now} + {lease}",
            "{ready}": self._ready,
        }
        marks = ("{now}", "{lease}", "{delay}", "{skip_locked}", "{for_update}")
        for mark, piece in (*pieces.items(), *((mark, templates[mark]) for mark in marks)):
            text = text.replace(mark, piece)
        own = {"{order}": self._order, "{due}": self._due, "{queue}": self._queue}
        if dialect == "postgresql":
            text = _PARAMETER.sub(r"%(\1)s", text)
            # In a text with parameters the driver takes a percent sign for one.
            own = {mark: piece.replace("%", "%%") for mark, piece in own.items()}
        names = {"{table}": self._table, "{key}": self._key, "{attempts}": self._attempts}
        for mark, piece in (names | own).items():
            text = text.replace(mark, piece)
        return Statement(text, {**params, **given})


def _delay_ms(policy: Retry, attempts: int) -> int | None:
    """Return how long to wait after this many attempts; None after the last."""
    if policy.max_attempts is not None and attempts >= policy.max_attempts:
        return None
    return policy.delay_ms(attempts, random.random())


def _keys(rows: list[Row]) -> set[Any]:
    return {row[0] for row in rows}


def _positive(number: int) -> int:
    if number < 1:
        raise InvalidOption(f"{number} is too small, the minimum is 1")
    return number
