"""No statement of ours is ever compiled: not on our links, and not on connections whose settings are not ours."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection, sql

from holdfast.storage.postgres.connection import connection_string
from holdfast.storage.postgres.store import PACKAGE, postgres_statements
from holdfast.storage.sql_loader import DEFAULT_SCHEMA, load_statements
from tests.contract.buffers import COMMANDS, prepare
from tests.contract.conftest import POSTGRES
from tests.support.pgbouncer import pooled
from tests.support.postgres import PostgresServer

STATEMENTS = postgres_statements("dollar", DEFAULT_SCHEMA)
# What a server takes as worth compiling, unless it is told otherwise.
JIT_ABOVE_COST = 100_000
# The planner believes these counts, so 100,000 rows in the queue are ten million to it.
TIMES_100 = """
update pg_class set reltuples = reltuples * 100 where relnamespace = 'holdfast'::regnamespace and reltuples > 0
"""


@pytest.fixture(scope="module", params=POSTGRES)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def filled(request: pytest.FixtureRequest, version: str) -> str:
    """A busy database, just analysed."""
    return str(request.getfixturevalue(f"{version}_backlog"))


@pytest.fixture(params=["empty", "filled", "a hundred times as many"])
def state(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(request: pytest.FixtureRequest, version: str, state: str) -> str:
    """A database that nothing was ever known of, and the busy one."""
    name = f"{version}_url" if state == "empty" else f"{version}_backlog"
    return str(request.getfixturevalue(name))


def plans(text: str, state: str = "filled", **options: Any) -> dict[str, dict[str, Any]]:
    """EXPLAIN every statement as it is planned for all parameters."""
    with (
        psycopg.connect(text, autocommit=True, **options) as connection,
        connection.transaction(force_rollback=True),
    ):
        connection.execute("set local plan_cache_mode = force_generic_plan")
        if state == "a hundred times as many":
            connection.execute(TIMES_100)
        return dict(_explained(connection))


def _explained(connection: Connection[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in load_statements(PACKAGE):
        compiled = STATEMENTS[name]
        if name in COMMANDS:
            continue
        prepare(connection, name)
        nulls = sql.SQL(", ").join([sql.SQL("null")] * len(compiled.order))
        arguments = sql.SQL("({})").format(nulls) if compiled.order else sql.SQL("")
        explain = sql.SQL("explain (format json) execute {}").format(sql.Identifier(name))
        row = connection.execute(explain + arguments).fetchone()
        assert row is not None
        yield name, row[0][0]


def costs(found: dict[str, dict[str, Any]]) -> dict[str, float]:
    return {name: plan["Plan"]["Total Cost"] for name, plan in found.items()}


def test_nothing_is_compiled_on_a_caller_s_connection(url: str, state: str) -> None:
    found = plans(url, state)
    assert {name: cost for name, cost in costs(found).items() if cost >= JIT_ABOVE_COST} == {}
    assert [name for name, plan in found.items() if "JIT" in plan] == []


@pytest.mark.parametrize("only_by_index", [True, False], ids=["link", "pool"])
def test_nothing_is_compiled_on_a_connection_of_ours(
    url: str, state: str, only_by_index: bool
) -> None:
    found = plans(connection_string(url, "test", 10_000, only_by_index), state)
    assert [name for name, plan in found.items() if "JIT" in plan] == []


def test_the_other_server_would_compile_a_statement_that_looks_dear(
    other_postgres_server: PostgresServer,
) -> None:
    dear = "explain (format json) select sum(n) from generate_series(1, 100000000) n"
    with psycopg.connect(other_postgres_server.url, autocommit=True) as connection:
        assert connection.execute("select pg_jit_available()").fetchone() == (True,)
        row = connection.execute(dear).fetchone()
        assert row is not None
        assert "JIT" in row[0][0]


def test_nothing_is_compiled_behind_a_pooler_that_drops_our_options(filled: str) -> None:
    with pooled(filled) as url:
        text = connection_string(url, "test", 10_000, only_by_index=True)
        with psycopg.connect(text, autocommit=True, prepare_threshold=None) as connection:
            assert connection.execute("show jit").fetchone() == ("on",)
        found = plans(text, prepare_threshold=None)
    assert [name for name, plan in found.items() if "JIT" in plan] == []
