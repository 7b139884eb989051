"""The PostgreSQL store, its statements and its errors, for any driver.

Every operation is one statement, so the shared aggregates serve as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from operator import call
from types import NoneType
from typing import Any

from holdfast.core.errors import (
    ConnectionClosed,
    DatabaseBusy,
    DatabaseReadOnly,
    DatabaseUnreachable,
    HoldfastError,
    KeyConflict,
    RoleRefused,
    TransactionAborted,
    WrongDatabase,
)
from holdfast.storage.operation import Value
from holdfast.storage.postgres.qualify import qualify
from holdfast.storage.sql_loader import (
    Compiled,
    ParamStyle,
    compile_statement,
    dialect_statements,
    place_schema,
)
from holdfast.storage.store import Store

PACKAGE = "holdfast.storage.postgres"
OLDEST_VERSION, TESTED_VERSION = 14, 18
"""The range of PostgreSQL versions that we support."""

JIT_ABOVE_COST = 100_000
"""What a server takes as worth compiling by default; the estimates of our statements stay below."""


class PostgresStore(Store):
    """The store on PostgreSQL."""

    dialect = "postgresql"


class CompiledStatements(dict[str, Compiled]):
    """Every statement for one driver and schema, compiled when it is first asked for: few processes need them all."""

    def __init__(self, style: ParamStyle, schema: str) -> None:
        super().__init__()
        self._style: ParamStyle = style
        self._schema = schema

    def __missing__(self, name: str) -> Compiled:
        text = qualify(dialect_statements("postgres")[name])
        self[name] = compile_statement(place_schema(text, self._schema), self._style)
        return self[name]


@cache
def postgres_statements(style: ParamStyle, schema: str) -> CompiledStatements:
    """Every statement, compiled for one driver and schema."""
    return CompiledStatements(style, schema)


def as_texts(compiled: Compiled, params: Mapping[str, Value]) -> list[str | None]:
    """Give the parameters in their order as text; the statement casts them, so that no driver's codecs matter."""
    given = list(map(params.__getitem__, compiled.order))
    return list(map(call, map(_TEXT_OF.__getitem__, map(type, given)), given))


class _TextOf(dict[type[Value], Callable[[Any], str | None]]):
    """How values of each type become text, without a turn of the interpreter for each value."""

    def __missing__(self, _: type[Value]) -> type[str]:
        return str


_TEXT_OF = _TextOf(
    {str: str, NoneType: {}.get, int: str, bool: {False: "false", True: "true"}.__getitem__}
)


_NO_SCHEMA = {"42P01", "3F000", "42883"}
_BUSY = {"55P03", "57014", "40P01", "25P03", "57P05"}
_SERIALIZATION = "40001"
_ABORTED = "25P02"
_NO_RIGHT = "42501"
_READ_ONLY = "25006"
_MAKE_ROOM = "the server is short of disk, memory or connections: make room there; nothing here has to be restarted"
_LET_WRITE = (
    "begin the transaction without READ ONLY; look at default_transaction_read_only of the role and "
    "the database; where the server is a standby, connect to the primary"
)


def translate(
    error: BaseException, statement: str = "", role: str | None = None
) -> HoldfastError | None:
    """Return our error for a driver's, or None when it is not ours to explain; `statement` names one of ours."""
    if isinstance(error, HoldfastError):
        return error
    state: str | None = getattr(error, "sqlstate", None)
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if state is None:
        return _without_state(error, text)
    if state in _NO_SCHEMA and statement:
        return WrongDatabase(f"this database has no Holdfast schema: {text}")
    if state == _SERIALIZATION:
        return KeyConflict(f"a concurrent transaction got there first: {text}")
    if state == _NO_RIGHT:
        whose = f" for role {role}" if role else ""
        return RoleRefused(f"{text}{whose}, in {statement or 'a statement'}")
    if state == _READ_ONLY:
        return DatabaseReadOnly(f"the database is read-only: {text}", help=_LET_WRITE)
    if state == _ABORTED:
        return TransactionAborted("the transaction had failed before Holdfast was called")
    if state in _BUSY:
        return DatabaseBusy(f"{statement or 'a statement'} waited too long: {text}")
    if state[:2] in {"08", "53", "58"} or state in {"57P01", "57P02", "57P03"}:
        return DatabaseUnreachable(text, help=_MAKE_ROOM if state[:2] == "53" else None)
    return None


def _without_state(error: BaseException, text: str) -> HoldfastError | None:
    kind = type(error)
    if kind.__module__.startswith("psycopg") and kind.__name__ == "OperationalError":
        return ConnectionClosed(text) if "closed" in text else DatabaseUnreachable(text)
    if kind.__module__.startswith(("psycopg", "asyncpg")) and kind.__name__ == "InterfaceError":
        return ConnectionClosed(text)
    if isinstance(error, OSError):
        return DatabaseUnreachable(text)
    return None
