"""The servers the other tests rely on keep their promises."""

import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.support.installation import embedded_binaries
from tests.support.orphan_guard import end_server
from tests.support.postgres import PostgresServer, StartPostgres
from tests.support.process import StopMode
from tests.support.until import PATIENCE_S

DIE_BESIDE_A_RUNNING_SERVER = """
import os, signal, sys
from pathlib import Path
from tests.support.process import PostgresProcess

process = PostgresProcess(Path(sys.argv[1]))
print(process.url, process.home, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def ask(url: str, question: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(question.encode()).fetchone()
    assert row is not None
    return row[0]


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.fixture(params=["postgres_server", "other_postgres_server"])
def any_server(request: pytest.FixtureRequest) -> PostgresServer:
    server = request.getfixturevalue(request.param)
    assert isinstance(server, PostgresServer)
    return server


def test_a_server_flushes_to_disk_as_in_production(any_server: PostgresServer) -> None:
    with any_server.database() as url:
        assert ask(url, "show fsync") == "on"
        assert ask(url, "show synchronous_commit") == "on"


def test_a_server_tells_its_major_version(any_server: PostgresServer) -> None:
    answer = ask(any_server.url, "show server_version_num")
    assert any_server.version == int(str(answer)) // 10_000


def test_each_database_is_its_own_and_like_new_afterwards(any_server: PostgresServer) -> None:
    with any_server.database() as first, any_server.database() as second:
        execute(first, "create table here (id int)")
        assert ask(first, "select to_regclass('here')") == "here"
        assert ask(second, "select to_regclass('here')") is None
        execute(second, "alter table holdfast.job add column here int")
    with any_server.database() as third:
        assert third == first
        assert ask(third, "select to_regclass('here')") is None
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        ask(second, "select 1")


def test_tables_of_an_application_are_in_every_database_and_empty(
    postgres_server: PostgresServer,
) -> None:
    def make(url: str) -> None:
        execute(
            url,
            "create table parent (id int primary key)",
            "create table child (id int references parent on delete restrict)",
            "create schema old",
            "create table old.parent (id int) partition by range (id)",
            "create table alembic_version (version_num text)",
            "insert into alembic_version values ('0007')",
        )

    with postgres_server.with_tables(make) as server:
        with server.database() as first:
            execute(
                first,
                "insert into parent values (1)",
                "insert into child values (1)",
                "create table parent_of_a_test (id int)",
            )
        with server.database() as second:
            assert second == first
            assert ask(second, "select count(*) from parent, child, old.parent") == 0
            assert ask(second, "select to_regclass('parent_of_a_test')") is None
            assert ask(second, "select version_num from alembic_version") == "0007"
        server.drop_idle()


def test_a_database_is_dropped_though_somebody_is_connected(
    postgres_server: PostgresServer,
) -> None:
    with postgres_server.database() as url:
        connection = psycopg.connect(url)
    with pytest.raises(psycopg.OperationalError):
        connection.execute("select 1")
    connection.close()


@pytest.mark.parametrize("mode", ["fast", "immediate", "kill"])
def test_what_was_committed_survives_every_kind_of_restart(
    private_postgres: StartPostgres, mode: StopMode
) -> None:
    server = private_postgres()
    execute(server.url, "create table kept (id int)", "insert into kept values (7)")
    server.restart(mode)
    assert ask(server.url, "select id from kept") == 7


def test_a_stopped_server_answers_nobody(private_postgres: StartPostgres) -> None:
    server = private_postgres()
    server.stop()
    with pytest.raises(psycopg.OperationalError, match="refused"):
        ask(server.url, "select 1")


def test_a_private_server_takes_settings(private_postgres: StartPostgres) -> None:
    server = private_postgres({"max_connections": "17"})
    assert ask(server.url, "show max_connections") == "17"


def test_a_server_asks_for_its_password(private_postgres: StartPostgres) -> None:
    server = private_postgres()
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(server.url, password="a guess")


def test_a_killed_test_run_leaves_no_server_and_no_files() -> None:
    root = Path(__file__).parents[2]
    # The guardian shares the output, so the run returns only when the guardian has finished.
    died = subprocess.run(
        [sys.executable, "-c", DIE_BESIDE_A_RUNNING_SERVER, embedded_binaries()],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    url, home = died.stdout.split()
    assert not Path(home).exists()
    with pytest.raises(psycopg.OperationalError, match="refused"):
        ask(url, "select 1")


def test_a_stopped_server_is_ended_with_all_its_processes(private_postgres: StartPostgres) -> None:
    server = private_postgres()
    first = psutil.Process(server.pid)
    processes = [first, *first.children(recursive=True)]
    for each in processes:
        each.suspend()
    end_server(server.home / "data" / "postmaster.pid")
    _, alive = psutil.wait_procs(processes[1:], timeout=PATIENCE_S)
    assert alive == []
