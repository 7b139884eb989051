"""Empties Holdfast's tables before a test, and only where tests may do that."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.app import Holdfast
from holdfast.core.errors import WrongDatabase
from holdfast.storage.database import Database
from holdfast.storage.sql_loader import load_statements, place_schema

_prepared: set[tuple[str, str]] = set()
"""The databases that this process has migrated."""


def prepare_fresh_state(app: Holdfast) -> None:
    """Give the application empty tables, subscriptions included. Raises: WrongDatabase for tables in real use."""
    database = app.database
    place = (database.url, database.schema)
    if place not in _prepared or not _is_marked(database):
        app.migrate()
        _mark(database)
        _prepared.add(place)
    clear_in_transaction(app)


def clear_in_transaction(app: Holdfast) -> None:
    """Delete every row of Holdfast's tables, then subscribe the application's handlers again."""
    database = app.database
    with database.transaction() as tx:
        for statement in _statements("clear", database):
            tx.execute(statement)
    app.subscribe_handlers()


def _is_marked(database: Database) -> bool:
    (question,) = _statements(f"is_marked_{database.store.dialect}", database)
    with database.transaction() as tx:
        return tx.execute(question).fetchone() is not None


def _mark(database: Database) -> None:
    """Remember in the database that its jobs belong to tests. Raises: WrongDatabase when it already has others."""
    if _is_marked(database):
        return
    with database.transaction() as tx:
        (has_jobs,) = _statements("has_jobs", database)
        if tx.execute(has_jobs).fetchone() is not None:
            raise WrongDatabase(
                f"{database.url} has jobs that tests did not start",
                help="the `holdfast` fixture empties Holdfast's tables: point `holdfast_url` at a test database",
            )
        (mark,) = _statements("mark", database)
        tx.execute(mark)


def _statements(name: str, database: Database) -> Iterator[str]:
    """The statements of one name, for this database."""
    text = load_statements("holdfast_testing")[name]
    if database.store.dialect == "sqlite":
        text = text.replace("holdfast.", "holdfast_")
    else:
        text = place_schema(text, database.schema)
    for each in text.split(";"):
        if each.strip():
            yield each.strip()
