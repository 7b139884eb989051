"""Whatever a caller sets in the session of a pooled connection, or on the connection itself, the next does not meet."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.adapt import Dumper
from psycopg.rows import dict_row

from holdfast.core.errors import NoTransaction
from holdfast.storage.operation import run
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.connection import SqliteOptions, open_for_callers
from holdfast.storage.sqlite.database import SqliteDatabase

# Everything that PostgreSQL keeps per session, in one row.
SEEN = """
select pg_backend_pid() as pid, current_user, session_user,
  (select json_object_agg(name, setting order by name) from pg_settings
    where name not in ('transaction_isolation', 'transaction_read_only', 'transaction_deferrable')) as settings,
  (select count(*) from pg_class where relnamespace = pg_my_temp_schema()) as temporary,
  (select count(*) from pg_listening_channels()) as channels,
  (select count(*) from pg_cursors where is_holdable) as cursors,
  (select count(*) from pg_prepared_statements where from_sql) as prepared,
  (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()) as locks
"""
LEFT = (
    "create temporary table left_behind (n integer)",
    "create temporary sequence left_sequence",
    "create temporary view left_view as select 1 as n",
    "listen left_channel",
    "declare left_cursor cursor with hold for select 1",
    "prepare left_statement as select 1",
    "select pg_advisory_lock(42)",
    "set role pg_monitor",
    "set session characteristics as transaction read only",
    "deallocate all",
)
DYNAMIC = """
create or replace function public.dynamic(statement text) returns void language plpgsql as
  $$ begin execute statement; end $$
"""
LEFT_BY_ROWS = (
    "select set_config('work_mem', '5MB', false)",
    "select set_config('role', 'pg_monitor', false)",
    "select pg_advisory_lock(42)",
    "select 1 as n into temporary left_behind",
    "select public.dynamic('listen left_channel')",
    "select public.dynamic('prepare left_statement as select 1')",
    "select public.dynamic('deallocate all')",
)
# One value of each setting's own kind that it does not have.
OTHERS = """
select name, case vartype
    when 'bool' then case setting when 'on' then 'off' else 'on' end
    when 'enum' then (select v from unnest(enumvals) v where v <> setting limit 1)
    when 'string' then case name when 'timezone' then 'Asia/Tokyo' else 'public' end
    else case setting when max_val then min_val else max_val end end
  from pg_settings
 where context in ('user', 'superuser') and name not in ('transaction_timeout')
 order by name
"""
# Whoever sets these goes no further.
LAST = (
    "statement_timeout",
    "lock_timeout",
    "client_encoding",
    "standard_conforming_strings",
    "exit_on_error",
)


def set_everything(execute: Callable[..., Any]) -> int:
    """Set every setting that a caller can to something else; return how many took it."""
    changed = 0
    for name, value in execute(OTHERS).fetchall():
        if name in LAST or value is None:
            continue
        execute("savepoint setting")
        try:
            execute("select set_config(%s, %s, false)", (name, value))
            changed += 1
        except psycopg.Error:
            execute("rollback to setting")
        execute("release setting")
    return changed


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[PostgresDatabase]:
    database = PostgresDatabase(postgres_url, pool_size=1)
    yield database
    database.close()


def seen(database: PostgresDatabase) -> Any:
    with database.transaction() as transaction:
        return transaction.execute(SEEN).fetchone()


def test_no_setting_of_the_server_outlasts_its_transaction(postgres: PostgresDatabase) -> None:
    before = seen(postgres)
    with postgres.transaction() as transaction:
        assert set_everything(transaction.execute) > 100
    assert seen(postgres) == before


@pytest.mark.parametrize("statement", LEFT)
def test_nothing_in_a_session_outlasts_its_transaction(
    postgres: PostgresDatabase, statement: str
) -> None:
    before = seen(postgres)
    for _ in range(7):  # often enough for psycopg to have statements prepared
        postgres.run(postgres.store.schema.applied())
    with postgres.transaction() as transaction:
        transaction.connection.cursor().execute(statement.encode())
    assert seen(postgres) == before
    with postgres.transaction() as transaction:
        transaction.execute(statement)
    for _ in range(7):
        postgres.run(postgres.store.schema.applied())
    assert seen(postgres) == before


@pytest.mark.parametrize("statement", LEFT_BY_ROWS)
def test_nor_what_statements_leave_that_only_seem_to_read_rows(
    postgres: PostgresDatabase, statement: str
) -> None:
    with postgres.transaction() as transaction:
        transaction.execute(DYNAMIC)
    before = seen(postgres)
    for _ in range(7):
        with postgres.transaction() as transaction:
            run(postgres.store.schema.applied(), transaction)
            transaction.execute(statement)
            assert not asked(transaction)
        assert seen(postgres) == before
    for _ in range(7):
        postgres.run(postgres.store.schema.applied())


def test_statements_that_only_read_and_write_rows_leave_those_of_others_prepared(
    postgres: PostgresDatabase,
) -> None:
    for _ in range(9):
        with postgres.transaction() as transaction:
            run(postgres.store.schema.applied(), transaction)
            transaction.execute("select 1 as n")
    with postgres.transaction() as transaction:
        cursor = transaction.execute("select statement from pg_prepared_statements")
        prepared = {text for (text,) in cursor.fetchall()}
    assert "select 1 as n" in prepared
    assert any("schema_version" in text for text in prepared)


@pytest.mark.parametrize("statement", LEFT)
async def test_nor_in_the_other_colour(postgres_url: str, statement: str) -> None:
    database = PostgresDatabase(postgres_url, pool_size=1)

    async def look() -> Any:
        async with database.transaction_async() as transaction:
            return await (await transaction.execute(SEEN)).fetchone()

    before = await look()
    for _ in range(7):
        await database.run_async(database.store.schema.applied())
    async with database.transaction_async() as transaction:
        await transaction.execute(statement)
    assert await look() == before
    async with database.transaction_async() as transaction:
        await transaction.connection.cursor().execute(statement.encode())
    for _ in range(7):
        await database.run_async(database.store.schema.applied())
    assert await look() == before
    await database.close_async()


class Loud(Dumper):
    def dump(self, obj: Any) -> bytes:
        return b"loud"


def mark(connection: Any) -> None:
    connection.mark = "left"


ON_THE_OBJECT: dict[str, Callable[[Any], Any]] = {
    "row_factory": lambda each: setattr(each, "row_factory", dict_row),
    "cursor_factory": lambda each: setattr(each, "cursor_factory", psycopg.ClientCursor),
    "server_cursor_factory": lambda each: setattr(each, "server_cursor_factory", None),
    "prepare_threshold": lambda each: setattr(each, "prepare_threshold", 0),
    "prepared_max": lambda each: setattr(each, "prepared_max", 3),
    "adapters": lambda each: each.adapters.register_dumper(int, Loud),
    "notices": lambda each: each.add_notice_handler(print),
    "notifications": lambda each: each.add_notify_handler(print),
    "mark": mark,
}
WHEN_IDLE: dict[str, Callable[[Any], Any]] = {
    "autocommit": lambda each: setattr(each, "_autocommit", True),
    "isolation_level": lambda each: setattr(each, "_isolation_level", 3),
    "read_only": lambda each: setattr(each, "_read_only", True),
    "deferrable": lambda each: setattr(each, "_deferrable", True),
}


def described(connection: Any) -> dict[str, Any]:
    """What psycopg keeps of a connection, the present transaction apart."""
    states = vars(connection)
    changing = {
        "_prepared",
        "_adapters",
        "tracker",
        "lock",
        "pgconn",
        "_notifies_backlog",
        "_take_flush",
    }
    found = {name: value for name, value in states.items() if name not in changing}
    dumper = connection.adapters.get_dumper(int, psycopg.adapt.PyFormat.AUTO)
    limits = (connection.prepare_threshold, connection.prepared_max)
    return {**found, "dumper": dumper, "limits": limits}


@pytest.mark.parametrize("name", [*ON_THE_OBJECT, *WHEN_IDLE])
def test_what_is_set_on_psycopg_s_connection_ends_with_its_transaction(
    postgres: PostgresDatabase, name: str
) -> None:
    with postgres.transaction() as transaction:
        before = described(transaction.connection)
    with postgres.transaction() as transaction:
        (ON_THE_OBJECT | WHEN_IDLE)[name](transaction.connection)
        assert described(transaction.connection) != before
    with postgres.transaction() as transaction:
        assert described(transaction.connection) == before
        assert transaction.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize("name", ON_THE_OBJECT)
async def test_and_in_the_other_colour(postgres_url: str, name: str) -> None:
    database = PostgresDatabase(postgres_url, pool_size=1)
    async with database.transaction_async() as transaction:
        before = described(transaction.connection)
    async with database.transaction_async() as transaction:
        ON_THE_OBJECT[name](transaction.connection)
    async with database.transaction_async() as transaction:
        assert described(transaction.connection) == before
        assert await (await transaction.execute("select 1")).fetchone() == (1,)
    await database.close_async()


PLAIN = ("insert into sale values (1)", "update sale set n = 2", "select n from sale")
NOT_PLAIN = ("savepoint part", "select 1; select 2", "set work_mem = '5MB'", "do $$ begin end $$")


def asked(transaction: Any) -> bool:
    """Say whether the server will be asked, before the commit, what came of the transaction."""
    return not transaction._lent.tracker.is_known


def test_plain_statements_leave_nothing_to_ask(postgres: PostgresDatabase) -> None:
    with postgres.transaction() as transaction:
        transaction.execute("create table sale (n integer)")
    with postgres.transaction() as transaction:
        for plain in PLAIN:
            transaction.execute(plain)
            assert not asked(transaction), plain
    for other in NOT_PLAIN:
        with postgres.transaction() as transaction:
            transaction.execute(other)
            assert asked(transaction), other
    with postgres.transaction() as transaction:
        transaction.execute("select 1").execute("select 2")
        assert asked(transaction)
    with postgres.transaction() as transaction:
        assert transaction.execute("select 1").connection is not None
        assert asked(transaction)


async def test_nor_do_they_in_the_other_colour(postgres_url: str) -> None:
    database = PostgresDatabase(postgres_url, pool_size=1)
    async with database.transaction_async() as transaction:
        cursor = await transaction.execute("select 1")
        assert [row async for row in cursor] == [(1,)]
        assert not asked(transaction)
        await cursor.execute("select 2")
        assert asked(transaction)
    async with database.transaction_async() as transaction:
        await transaction.execute("savepoint part")
        assert asked(transaction)
    await database.close_async()


def test_a_connection_that_was_kept_is_closed_when_its_transaction_is_over(
    postgres: PostgresDatabase,
) -> None:
    with postgres.transaction() as transaction:
        kept, cursor = transaction.connection, transaction.execute("select 1")
    assert kept.closed
    with postgres.transaction() as transaction:
        with pytest.raises(psycopg.OperationalError, match="closed"):
            kept.execute("create table nowhere (n integer)")
        with pytest.raises(psycopg.OperationalError, match="closed"):
            cursor.execute("select 1")
        assert transaction.execute("select 1").fetchone() == (1,)


def test_a_caller_who_ended_its_transaction_leaves_nothing_either(
    postgres: PostgresDatabase,
) -> None:
    before = seen(postgres)

    def leave() -> None:
        with postgres.transaction() as transaction:
            connection = transaction.connection
            connection.execute("rollback")
            connection.autocommit = False
            connection.execute("set work_mem = '77MB'")

    with pytest.raises(NoTransaction):
        leave()
    assert seen(postgres) == before


# SQLite -----------------------------------------------------------------------------------------------------------

# Kept in the file, or more than a question.
NOT_OF_THE_SESSION = {
    *("application_id", "user_version", "schema_version", "page_count", "freelist_count"),
    *("data_version", "integrity_check", "quick_check", "foreign_key_check", "optimize"),
    *("incremental_vacuum", "wal_checkpoint", "shrink_memory", "compile_options", "stats"),
    *(
        "page_size",
        "auto_vacuum",
        "encoding",
        "journal_mode",
        "default_cache_size",
        "hard_heap_limit",
    ),
    *("soft_heap_limit", "pragma_list", "module_list", "lock_proxy_file", "temp_store_directory"),
    *("data_store_directory", "max_page_count", "index_info", "index_list", "index_xinfo"),
    *("table_info", "table_xinfo", "table_list", "foreign_key_list", "case_sensitive_like"),
}
VALUES = ("1", "0", "2", "77", "off", "on", "exclusive")


def pragmas() -> list[str]:
    """The settings of a session that this SQLite knows."""
    connection = sqlite3.connect(":memory:")
    names = {row[0] for row in connection.execute("pragma pragma_list")}
    connection.close()
    return sorted(names - NOT_OF_THE_SESSION)


def state(connection: sqlite3.Connection) -> dict[str, Any]:
    """Everything that SQLite and sqlite3 tell of a connection."""
    plain = sqlite3.Cursor(connection)
    plain.row_factory = None
    found: dict[str, Any] = {
        name: sorted(plain.execute(f"pragma {name}").fetchall(), key=repr) for name in pragmas()
    }
    found["temporary"] = plain.execute("select name from temp.sqlite_schema").fetchall()
    found["like"] = plain.execute("select 'a' like 'A'").fetchone()
    for name in ("row_factory", "text_factory", "isolation_level", "autocommit", "mark"):
        found[name] = getattr(connection, name, None)
    for name in vars(sqlite3):
        if name.startswith("SQLITE_LIMIT_"):
            found[name] = connection.getlimit(getattr(sqlite3, name))
    return found


@pytest.fixture(params=["file", "memory"])
def database(request: pytest.FixtureRequest) -> Iterator[SqliteDatabase]:
    path = ":memory:"
    if request.param == "file":
        path = request.getfixturevalue("sqlite_url").removeprefix("sqlite:///")
    made = SqliteDatabase(path)
    made.migrate()
    yield made
    made.close()


def state_of(database: SqliteDatabase) -> dict[str, Any]:
    with database.transaction() as transaction:
        return state(transaction.connection)


BY_WORDS = [
    *(f"pragma {name} = {value}" for name in ("query_only", "foreign_keys") for value in (1,)),
    "pragma busy_timeout = 77777",
    "PRAGMA/**/query_only(1)",
    "pragma case_sensitive_like = on",
    "create temp table left_behind (n)",
    "create temp view left_view as select 1",
    "create table temp.other (n)",
    "create temp trigger left_trigger after insert on holdfast_job begin select 1; end",
]


def test_no_pragma_outlasts_its_transaction(database: SqliteDatabase) -> None:
    before = state_of(database)
    changed = set()
    for name in pragmas():
        for value in VALUES:
            with suppress(sqlite3.Error), database.transaction() as transaction:
                transaction.execute(f"pragma {name} = {value}")
                rows = transaction.execute(f"pragma {name}").fetchall()
                if sorted(rows, key=repr) != before[name]:
                    changed.add(name)
            if name in changed:
                break
    assert {"query_only", "busy_timeout", "cache_size", "recursive_triggers"} <= changed
    assert state_of(database) == before


@pytest.mark.parametrize("words", BY_WORDS)
def test_nothing_said_in_words_outlasts_its_transaction(
    database: SqliteDatabase, words: str
) -> None:
    before = state_of(database)
    with database.transaction() as transaction:
        transaction.execute(words)
    assert state_of(database) == before
    database.run(database.store.schema.identify("00000000-0000-0000-0000-000000000000"))
    with database.transaction() as transaction:
        run(database.store.schema.pause(False, None), transaction)


@pytest.mark.parametrize("words", BY_WORDS)
async def test_nor_does_it_in_the_other_colour(database: SqliteDatabase, words: str) -> None:
    before = state_of(database)
    async with database.transaction_async() as transaction:
        await transaction.execute(words)
    assert state_of(database) == before


ON_SQLITE_S_OBJECT: dict[str, Callable[[Any], Any]] = {
    "row_factory": lambda each: setattr(each, "row_factory", sqlite3.Row),
    "text_factory": lambda each: setattr(each, "text_factory", bytes),
    "isolation_level": lambda each: setattr(each, "isolation_level", "EXCLUSIVE"),
    "function": lambda each: each.create_function("ours", 0, lambda: 1),
    "built-in": lambda each: each.create_function("like", 2, lambda a, b: 7),
    "aggregate": lambda each: each.create_aggregate("ours", 0, list),
    "collation": lambda each: each.create_collation("ours", lambda a, b: 0),
    "authorizer": lambda each: each.set_authorizer(lambda *_: sqlite3.SQLITE_DENY),
    "progress": lambda each: each.set_progress_handler(lambda: 1, 1),
    "trace": lambda each: each.set_trace_callback(print),
    "limit": lambda each: each.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 100),
    "mark": mark,
}


@pytest.mark.parametrize("name", ON_SQLITE_S_OBJECT)
@pytest.mark.parametrize("by", ["connection", "cursor"])
def test_what_is_set_on_sqlite_s_connection_ends_with_its_transaction(
    database: SqliteDatabase, name: str, by: str
) -> None:
    before = state_of(database)
    with suppress(Exception), database.transaction() as transaction:
        if by == "cursor":
            ON_SQLITE_S_OBJECT[name](transaction.execute("select 1").connection)
        else:
            ON_SQLITE_S_OBJECT[name](transaction.connection)
    assert state_of(database) == before
    with database.transaction() as transaction:
        assert transaction.execute("select 'x'").fetchone() == ("x",)


def test_a_cursor_that_was_kept_ends_with_its_transaction(database: SqliteDatabase) -> None:
    with database.transaction() as transaction:
        kept = transaction.execute("select 1 union select 2")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        kept.fetchone()
    with database.transaction(), pytest.raises(sqlite3.ProgrammingError, match="closed"):
        kept.execute("select 1")


def test_another_file_that_was_attached_is_let_go(database: SqliteDatabase, tmp_path: Path) -> None:
    before = state_of(database)

    def attach() -> None:
        with database.transaction() as transaction:
            # SQLite attaches nothing inside a transaction.
            connection = transaction.connection
            connection.execute("commit")
            connection.execute("attach ? as other", [str(tmp_path / "other.db")])

    with pytest.raises(NoTransaction):
        attach()
    assert state_of(database) == before


def test_plain_statements_keep_a_connection_and_what_it_has_compiled(tmp_path: Path) -> None:
    connection = open_for_callers(SqliteOptions(str(tmp_path / "x.db")))
    for plain in (
        "create table t (n, m)",
        "create index i on t (n)",
        "insert into t values (1, upper('x'))",
        "update t set n = n + 1",
        "with recursive r(n) as (select 1 union all select n + 1 from r where n < 9) select * from r",
        "select count(*) from t, json_each('[1]')",
        "pragma foreign_keys",
        "savepoint s",
        "release s",
        "delete from t",
        "alter table t add column o",
        "drop table t",
    ):
        connection.execute(plain)
        assert not connection.is_changed, plain
    for changing in [*BY_WORDS[:5], "attach ':memory:' as other", "detach other"]:
        connection.is_changed = False
        connection.execute(changing)
        assert connection.is_changed, changing
    connection.close()
