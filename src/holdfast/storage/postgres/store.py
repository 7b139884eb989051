"""The PostgreSQL store: every operation is one statement, so the shared aggregates serve as they are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

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
