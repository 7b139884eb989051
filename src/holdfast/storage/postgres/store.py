"""The PostgreSQL store and its statements, for any driver.

Every operation is one statement, so the shared aggregates serve as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from holdfast.storage.operation import Value
from holdfast.storage.sql_loader import (
    Compiled,
    ParamStyle,
    compile_all,
    load_statements,
    place_schema,
)
from holdfast.storage.store import Store

OLDEST_VERSION, TESTED_VERSION = 14, 18
"""The range of PostgreSQL versions that we support."""

JIT_ABOVE_COST = 100_000
"""What a server takes as worth compiling by default; the estimates of our statements stay below."""


class PostgresStore(Store):
    """The store on PostgreSQL."""

    dialect = "postgresql"


@cache
def postgres_statements(style: ParamStyle, schema: str) -> Mapping[str, Compiled]:
    """Every statement, compiled for one driver and schema."""
    statements = load_statements("holdfast.storage.postgres")
    return compile_all(statements, style, lambda text: place_schema(text, schema))


def as_text(params: Mapping[str, Value]) -> dict[str, str | None]:
    """Give every parameter as text; the statement casts it, so that no driver's codecs matter."""
    return {
        name: value if value is None or type(value) is str else _text(value)
        for name, value in params.items()
    }


def _text(value: Value) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
