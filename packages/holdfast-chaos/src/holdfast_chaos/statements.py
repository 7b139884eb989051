"""A campaign's own statements, apart from the store's: they use a table that only a campaign has."""

from __future__ import annotations

from functools import cache

from holdfast.app import Holdfast
from holdfast.storage.sql_loader import compile_statement, load_statements, place_schema


@cache
def statement(name: str, dialect: str, schema: str) -> str:
    """Return one as its driver takes it."""
    text = load_statements(("holdfast_chaos", f"sql/{dialect}"))[name]
    if dialect == "sqlite":
        return compile_statement(text, "named").text
    return compile_statement(place_schema(text, schema), "pyformat").text


def statement_of(app: Holdfast, name: str) -> str:
    """Return one for the database of an application."""
    dialect = "sqlite" if app.database.store.dialect == "sqlite" else "postgres"
    return statement(name, dialect, app.schema)
