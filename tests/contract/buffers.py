"""How many blocks of our tables and indexes a statement touches, as PostgreSQL itself counts them."""

from dataclasses import dataclass
from typing import Any, Literal

from psycopg import Connection, sql

from holdfast.storage.operation import Statement
from holdfast.storage.postgres.store import as_texts, postgres_statements
from holdfast.storage.sql_loader import DEFAULT_SCHEMA

COMMANDS = {"sweep"}
"""Statements that are not planned."""

PlanMode = Literal["force_generic_plan", "force_custom_plan"]

# EXPLAIN's top node leaves out what data-changing CTEs do after it; these counters leave out nothing.
_TOUCHED = """
select coalesce(sum(pg_stat_get_xact_blocks_fetched(oid)), 0) from pg_class
 where relnamespace = %s::regnamespace
    or oid in (select reltoastrelid from pg_class where relnamespace = %s::regnamespace)
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run of a statement cost."""

    rows: int
    blocks: int
    plan: str


def prepare(connection: Connection[Any], name: str) -> None:
    """Have the server plan a statement under its own name, with parameters of text."""
    compiled = postgres_statements("dollar", DEFAULT_SCHEMA)[name]
    types = _list([sql.SQL("text")] * len(compiled.order))
    command = sql.SQL("prepare {} {} as {}")
    connection.execute(command.format(sql.Identifier(name), types, sql.SQL(compiled.text)))


def execution(statement: Statement) -> sql.Composed:
    """The command that runs a prepared statement with its parameters."""
    compiled = postgres_statements("dollar", DEFAULT_SCHEMA)[statement.name]
    literals = _list([sql.Literal(each) for each in as_texts(compiled, statement.params)])
    return sql.SQL("execute {} {}").format(sql.Identifier(statement.name), literals)


def _list(parts: list[Any]) -> sql.Composable:
    return sql.SQL("({})").format(sql.SQL(", ").join(parts)) if parts else sql.SQL("")


def measure(connection: Connection[Any], statement: Statement, mode: PlanMode) -> Cost:
    """Run a prepared statement in a transaction that is rolled back, and count the blocks it touched."""
    with connection.transaction(force_rollback=True):
        connection.execute("select set_config('plan_cache_mode', %s, true)", [mode])
        prepare(connection, statement.name)
        cost = measure_prepared(connection, statement)
        connection.execute(sql.SQL("deallocate {}").format(sql.Identifier(statement.name)))
    return cost


def measure_prepared(connection: Connection[Any], statement: Statement) -> Cost:
    """The same with the plan that the server keeps of it, if it keeps one."""
    execute = execution(statement)
    with connection.transaction(force_rollback=True):
        with connection.transaction(force_rollback=True):
            cursor = connection.execute(execute)
            rows = len(cursor.fetchall()) if cursor.description else 0
        planning = _touched_by(connection, sql.SQL("explain ") + execute)[0]
        blocks, plan = _touched_by(connection, sql.SQL("explain (analyze, buffers) ") + execute)
    return Cost(rows, blocks - planning, plan)


def _touched_by(connection: Connection[Any], command: sql.Composed) -> tuple[int, str]:
    before = _touched(connection)
    answer = connection.execute(command).fetchall()
    return _touched(connection) - before, "\n".join(row[0] for row in answer)


def _touched(connection: Connection[Any]) -> int:
    row = connection.execute(_TOUCHED, [DEFAULT_SCHEMA, DEFAULT_SCHEMA]).fetchone()
    assert row is not None
    return int(row[0])
