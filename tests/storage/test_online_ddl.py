"""An upgrade of tables in use: nobody queues behind it for long, it says for whom it waits, and it can be resumed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from holdfast.core.errors import MigrationBlocked
from holdfast.storage.id_generator import new_id
from holdfast.storage.migrations import load_migrations
from holdfast.storage.postgres import migrations
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.postgres.migrations import PACKAGE
from tests.storage.test_migrate_postgres import shape
from tests.support.pgbouncer import pooled
from tests.support.until import PATIENCE_S, SLOWNESS, wait_until

EARLIER = "earlier"
MAX_WAIT_S = 0.5 * SLOWNESS

START = """
with new as (insert into earlier.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
             values (%(id)s, %(id)s, 0, 'mail', '1', 5, 0, now()))
insert into earlier.queue (job_id, type, priority, available_at) values (%(id)s, 'mail', 5, now())
"""
FILL_KEYS = """
insert into earlier.chain_key (type, key, chain_id)
select 'mail', repeat('k', 100) || n, gen_random_uuid() from generate_series(1, 12000) n
"""
BUILDING = """
select pid from pg_stat_progress_create_index
 where command = 'CREATE INDEX CONCURRENTLY' and datname = current_database()
"""
# A build that met a snapshot of the session with the migration's lock would wait for the end of the migration.
LOCK_IS_QUIET = """
select l.query_start < b.query_start from pg_stat_activity l, pg_stat_activity b
 where l.application_name = 'holdfast migrate lock' and l.datname = current_database()
   and b.pid = (select pid from pg_stat_progress_create_index where datname = current_database())
"""
INDEX = """
select i.indisvalid from pg_index i join pg_class c on c.oid = i.indexrelid
 where c.relname = 'chain_key_gone' and c.relnamespace = 'earlier'::regnamespace
"""


@pytest.fixture
def connection(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection[Any]]:
    """A connection to a database whose schema `earlier` has the first two steps."""
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "load_migrations", lambda name: load_migrations(name)[:2])
        make_schema(postgres_url, EARLIER)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection
        connection.execute("drop schema if exists earlier, present cascade")


def make_schema(url: str, name: str) -> None:
    script = migrations.migration_sql(name)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(script.encode())


@contextmanager
def reader(url: str, statement: str) -> Iterator[Connection[Any]]:
    """A long transaction that has read something, as of a dump."""
    with psycopg.connect(url, application_name="nightly dump") as dump:
        dump.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        dump.execute(statement.encode())
        yield dump
        dump.rollback()


class Upgrade(threading.Thread):
    """The upgrade of `earlier`, and what it says."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.said: Queue[str] = Queue()
        self.applied = 0
        self._database = PostgresDatabase(url, EARLIER)
        self.start()

    def run(self) -> None:
        self.applied = len(self._database.migrate(tell=self.said.put))


def command(url: str, *words: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "holdfast", "migrate", *words, "--url", url, "--schema", EARLIER]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def assert_is_present(connection: Connection[Any], url: str) -> None:
    """The upgraded schema has exactly what a new one has."""
    make_schema(url, "present")
    assert shape(connection, EARLIER) == shape(connection, "present")
    left = "select obj_description('earlier.schema_version'::regclass, 'pg_class')"
    assert connection.execute(left).fetchall() == [(None,)]


def test_starts_do_not_wait_behind_an_upgrade_that_waits_for_a_reader(
    postgres_url: str, connection: Connection[Any]
) -> None:
    longest_s, ends_at = 0.0, None
    with reader(postgres_url, "select * from earlier.queue") as dump:
        pid = dump.info.backend_pid
        upgrade = Upgrade(postgres_url)
        while upgrade.is_alive():
            began = time.monotonic()
            connection.execute(START, {"id": new_id()})
            longest_s = max(longest_s, time.monotonic() - began)
            if ends_at is None and not upgrade.said.empty():
                ends_at = time.monotonic() + 2
            if ends_at is not None and time.monotonic() > ends_at:
                dump.rollback()
            time.sleep(0.005)
    upgrade.join()
    assert f"held by pid {pid} (nightly dump, " in upgrade.said.get_nowait()
    assert upgrade.applied == len(load_migrations(PACKAGE)) - 2
    assert longest_s < MAX_WAIT_S
    assert_is_present(connection, postgres_url)


def test_the_command_gives_up_in_time_and_names_who_was_in_the_way_without_secrets(
    postgres_url: str, connection: Connection[Any]
) -> None:
    with reader(
        postgres_url, "select 'hunter2' as password, * from earlier.chain_key limit 1"
    ) as dump:
        pid = dump.info.backend_pid
        migrating = command(postgres_url, "--wait", "1s")
        _, stderr = migrating.communicate(timeout=PATIENCE_S)
    assert migrating.returncode == 7
    waiting = f"waiting for a lock on earlier.chain_key, held by pid {pid} (nightly dump, in a transaction for "
    assert stderr.startswith(waiting)
    assert "error[HF133]: waited 1 s for a lock on earlier.chain_key, held by" in stderr
    assert re.search(r"transaction for \d+ m?s\): select '…' as password, \* from", stderr)
    assert f"pg_terminate_backend({pid})" in stderr
    assert "--wait 1h" in stderr
    assert "hunter2" not in stderr


def test_an_upgrade_that_gave_up_half_way_through_a_step_continues_there(
    postgres_url: str, connection: Connection[Any]
) -> None:
    database = PostgresDatabase(postgres_url, EARLIER)
    with (
        reader(postgres_url, "select * from earlier.outcome limit 1"),
        pytest.raises(MigrationBlocked),
    ):
        database.migrate(wait="300ms")
    columns = "select 1 from information_schema.columns where table_schema = 'earlier' and column_name = 'rests_until'"
    assert connection.execute(columns).fetchall() == [(1,)], "the step's first statement was done"
    assert database.migrate()[0].version == 12
    assert_is_present(connection, postgres_url)


def test_an_index_of_a_large_table_is_built_while_others_write(
    postgres_url: str, connection: Connection[Any]
) -> None:
    connection.execute(FILL_KEYS)
    with reader(postgres_url, "select 1") as dump:
        upgrade = Upgrade(postgres_url)
        said = upgrade.said.get(timeout=PATIENCE_S)
        assert (
            "older transactions, to build an index of earlier.chain_key, held by pid "
            f"{dump.info.backend_pid}" in said
        )
        assert len(connection.execute(BUILDING).fetchall()) == 1
        assert connection.execute(LOCK_IS_QUIET).fetchall() == [(True,)]
        connection.execute("set statement_timeout = 1000")
        connection.execute(
            "insert into earlier.chain_key (type, key, chain_id) values ('a', 'b', %s)", [new_id()]
        )
    upgrade.join()
    assert connection.execute(INDEX).fetchall() == [(True,)]
    assert_is_present(connection, postgres_url)


def test_a_build_that_was_given_up_is_done_again(
    postgres_url: str, connection: Connection[Any]
) -> None:
    connection.execute(FILL_KEYS)
    database = PostgresDatabase(postgres_url, EARLIER)
    with reader(postgres_url, "select 1"), pytest.raises(MigrationBlocked):
        database.migrate(wait="300ms")
    assert connection.execute(INDEX).fetchall() == [(False,)]
    database.migrate()
    assert connection.execute(INDEX).fetchall() == [(True,)]
    assert_is_present(connection, postgres_url)


def test_an_upgrade_that_was_killed_while_it_built_an_index_is_continued(
    postgres_url: str, connection: Connection[Any]
) -> None:
    """The server goes on with the build: the next one waits for it."""
    connection.execute(FILL_KEYS)
    with reader(postgres_url, "select 1"):
        killed = command(postgres_url)
        wait_until(lambda: connection.execute(BUILDING).fetchall())
        os.kill(killed.pid, signal.SIGKILL)
        killed.communicate()
        upgrade = Upgrade(postgres_url)
        assert "a lock on earlier.chain_key" in upgrade.said.get(timeout=PATIENCE_S)
    upgrade.join()
    assert connection.execute(INDEX).fetchall() == [(True,)]
    assert_is_present(connection, postgres_url)


def test_four_commands_at_once_through_a_pooler_end_well_and_leave_no_lock(
    postgres_url: str, connection: Connection[Any]
) -> None:
    connection.execute(FILL_KEYS)
    with pooled(postgres_url) as url:
        running = [command(url, "-o", "id") for _ in range(4)]
        answers = [each.communicate(timeout=PATIENCE_S) for each in running]
        assert [each.returncode for each in running] == [0] * 4, answers
        known = [str(each.version) for each in load_migrations(PACKAGE)]
        assert sorted(out.split() for out, _ in answers) == [[], [], [], known[2:]]
        locks = (
            "select pid from pg_locks l join pg_database d on d.oid = l.database"
            " where l.locktype = 'advisory' and d.datname = current_database()"
        )
        assert connection.execute(locks).fetchall() == []
    assert_is_present(connection, postgres_url)


def test_a_migration_that_is_killed_behind_a_pooler_leaves_no_lock(
    postgres_url: str, connection: Connection[Any]
) -> None:
    with pooled(postgres_url) as url:
        with reader(postgres_url, "select * from earlier.chain_key"):
            killed = command(url)
            assert killed.stderr is not None
            assert "waiting for a lock on" in killed.stderr.readline()
            os.kill(killed.pid, signal.SIGKILL)
            killed.communicate()
        again = command(url, "--wait", "20s")
        _, stderr = again.communicate(timeout=PATIENCE_S)
        assert again.returncode == 0, stderr
    assert_is_present(connection, postgres_url)
