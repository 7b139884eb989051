"""The statements that lease rows of an application's own table, for each dialect, with its names put in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.core.errors import InvalidIdentifier

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

_POSTGRES_NOW = "coalesce(to_timestamp(%(now)s::bigint / 1000000.0), statement_timestamp())"
_SQLITE_NOW = (
    "coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)"
)

# Rows locked by others are skipped, and a row that bears a token is nobody else's until it is reaped.
_POSTGRES: Mapping[str, str] = {
    "claim": """
with due as (
  select {key} from {table} where lock_token is null and ({due})
   order by {order} limit %(limit)s for update skip locked),
locked as (
  update {table} t
     set locked_by = %(owner)s, lock_token = %(token)s, locked_until = {now} + %(lease_ms)s * interval '1 ms'
    from due where t.{key} = due.{key}
  returning t.*)
select * from locked order by {order}""",
    "renew": """
update {table} set locked_until = {now} + %(lease_ms)s * interval '1 ms'
 where lock_token = %(token)s
returning {key}""",
    "finish": """
update {table} set {changes} locked_by = null, lock_token = null, locked_until = null
 where {key} = %(key)s and lock_token = %(token)s
returning {key}""",
    "release": """
update {table} set locked_by = null, lock_token = null, locked_until = null
 where lock_token = %(token)s
returning {key}""",
    "reap": """
update {table} set {changes} locked_by = null, lock_token = null, locked_until = null
 where {key} in (
   select {key} from {table} where lock_token is not null and locked_until <= {now}
    order by locked_until limit %(limit)s for update skip locked)
returning {key}""",
}

# A write transaction is alone, so there is nothing to skip. An update returns its rows in no order.
_SQLITE: Mapping[str, str] = {
    "claim": """
update {table} set locked_by = :owner, lock_token = :token, locked_until = {now} + :lease_ms * 1000
 where {key} in (select {key} from {table} where lock_token is null and ({due}) order by {order} limit :limit)""",
    "claimed": "select * from {table} where lock_token = :token order by {order}",
    "renew": """
update {table} set locked_until = {now} + :lease_ms * 1000 where lock_token = :token returning {key}""",
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
   select {key} from {table} where lock_token is not null and locked_until <= {now} order by locked_until limit :limit)
returning {key}""",
}


class Sql(NamedTuple):
    """One statement with its parameters."""

    text: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LeaseStatements:
    """The statements for one table. `due` and `order` are the application's own SQL and must not hold input."""

    table: str
    key: str
    due: str
    order: str

    def make(
        self,
        dialect: str,
        name: str,
        params: Mapping[str, Any],
        values: Mapping[str, Any] | None = None,
    ) -> Sql:
        """Return a statement of the dialect; `values` are columns to be changed along with it."""
        is_postgres = dialect == "postgresql"
        text = (_POSTGRES if is_postgres else _SQLITE)[name]
        given = {f"value_{place}": value for place, value in enumerate((values or {}).values())}
        mark = "%({})s" if is_postgres else ":{}"
        changes = "".join(
            f"{quoted(column)} = {mark.format(parameter)}, "
            for column, parameter in zip(values or {}, given, strict=True)
        )
        # In a text with parameters the driver takes a percent sign for one.
        escape = (lambda own: own.replace("%", "%%")) if is_postgres else str
        for token, piece in (
            ("{now}", _POSTGRES_NOW if is_postgres else _SQLITE_NOW),
            ("{table}", ".".join(map(quoted, self.table.split(".")))),
            ("{key}", quoted(self.key)),
            ("{changes}", changes),
            ("{order}", escape(self.order)),
            ("{due}", escape(self.due)),
        ):
            text = text.replace(token, piece)
        return Sql(text, {**params, **given})


def quoted(name: str) -> str:
    """Return an identifier in quotes. Raises: InvalidIdentifier."""
    if not _NAME.fullmatch(name):
        raise InvalidIdentifier(
            f"{name[:70]!r} is not the name of a table or column",
            help="use letters, digits and underscores; a table may have a schema before a dot",
        )
    return f'"{name}"'


def check_names(table: str, *columns: str) -> None:
    """Refuse names that cannot be quoted. Raises: InvalidIdentifier."""
    names: Sequence[str] = table.split(".")
    if len(names) > 2:
        raise InvalidIdentifier(f"{table[:70]!r} has too many dots")
    for name in (*names, *columns):
        quoted(name)
