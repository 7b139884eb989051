"""The schema is applied once, shown, checked, and printed without connecting."""

import json
import sqlite3
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast.cli.exit_codes import Exit
from holdfast.storage.migrations import load_migrations
from tests.cli.conftest import Run
from tests.support.postgres import StartPostgres

STEPS = len(load_migrations("holdfast.storage.sqlite"))


def test_migrate_makes_the_database_usable_and_may_be_repeated(
    run: Run, absent_sqlite_url: str
) -> None:
    first = run("migrate", "--url", absent_sqlite_url, "-o", "json")
    assert first.exit_code == 0
    assert [each["state"] for each in json.loads(first.stdout)] == ["applied now"] * STEPS
    again = run("migrate", "--url", absent_sqlite_url, "-o", "json")
    assert json.loads(again.stdout) == []
    assert "up to date" in again.stderr
    assert run("migrate", "check", "--url", absent_sqlite_url).exit_code == 0


def test_migrate_names_the_database_that_it_changed(
    run: Run, absent_sqlite_url: str, postgres_url: str
) -> None:
    first, again = (run("migrate", "--url", absent_sqlite_url).stderr for _ in range(2))
    assert first == f"applied {STEPS} migrations to {absent_sqlite_url}\n"
    assert again == f"up to date: {absent_sqlite_url}\n"
    other = run("migrate", "--url", postgres_url, "--schema", "another").stderr
    address = urlsplit(postgres_url)
    assert f"@{address.hostname}:{address.port}{address.path}, schema another" in other
    assert address.password
    assert address.password not in other


def test_list_shows_what_is_pending_without_making_a_file(run: Run, absent_sqlite_url: str) -> None:
    result = run("migrate", "list", "--url", absent_sqlite_url, "-o", "json")
    assert [each["state"] for each in json.loads(result.stdout)] == ["pending"] * STEPS
    assert not Path(absent_sqlite_url.removeprefix("sqlite:///")).exists()


def test_list_shows_what_is_applied(run: Run, postgres_url: str) -> None:
    result = run("migrate", "list", "--url", postgres_url, "-o", "json")
    assert {each["state"] for each in json.loads(result.stdout)} == {"applied"}


def test_check_writes_the_newest_migration_in_the_chosen_format(
    run: Run, postgres_url: str
) -> None:
    result = run("migrate", "check", "--url", postgres_url, "-o", "json")
    (newest,) = json.loads(result.stdout)
    assert newest["version"] == load_migrations("holdfast.storage.postgres")[-1].version
    assert newest["state"] == "applied"


def test_the_schema_as_sql_has_no_other_format(run: Run, absent_sqlite_url: str) -> None:
    result = run("migrate", "sql", "--url", absent_sqlite_url, "-o", "json")
    assert result.exit_code == Exit.USAGE
    assert "leave out -o" in result.stderr


@pytest.mark.parametrize("command", [("migrate", "check"), ("reap",)])
def test_a_file_that_is_not_there_is_refused_and_not_made(
    run: Run, absent_sqlite_url: str, command: tuple[str, ...]
) -> None:
    result = run(*command, "--url", absent_sqlite_url)
    assert result.exit_code == Exit.DATABASE
    assert "error[HF040]: database" in result.stderr
    assert "holdfast migrate" in result.stderr
    assert not Path(absent_sqlite_url.removeprefix("sqlite:///")).exists()


@pytest.mark.parametrize("command", [("migrate", "check"), ("reap",)])
def test_a_database_without_the_schema_is_refused(
    run: Run, postgres_url: str, command: tuple[str, ...]
) -> None:
    result = run(*command, "--url", postgres_url, "--schema", "elsewhere")
    assert result.exit_code == Exit.DATABASE
    assert "error[HF041]" in result.stderr
    assert "holdfast migrate" in result.stderr


def test_another_schema_is_migrated_beside_the_first(run: Run, postgres_url: str) -> None:
    assert run("migrate", "--url", postgres_url, "--schema", "elsewhere").exit_code == 0
    assert run("reap", "--url", postgres_url, "--schema", "elsewhere").exit_code == 0


def test_a_schema_name_that_is_no_identifier_is_refused(run: Run, postgres_url: str) -> None:
    result = run("migrate", "--url", postgres_url, "--schema", 'x"; drop')
    assert result.exit_code == Exit.USAGE
    assert "error[HF013]" in result.stderr


def test_a_server_that_does_not_answer_is_told_at_once(run: Run) -> None:
    result = run("reap", "--url", "postgresql://127.0.0.1:1/shop")
    assert result.exit_code == Exit.DATABASE
    assert "error[HF043]: no connection to postgresql://127.0.0.1:1/shop" in result.stderr


def test_sql_prints_a_schema_that_can_be_applied_by_hand(
    run: Run, absent_sqlite_url: str, tmp_path: Path
) -> None:
    printed = run("migrate", "sql", "--url", absent_sqlite_url)
    assert printed.exit_code == 0
    with sqlite3.connect(tmp_path / "holdfast.db") as connection:
        connection.executescript(printed.stdout)
    connection.close()
    assert run("migrate", "check", "--url", absent_sqlite_url).exit_code == 0


def test_sql_never_connects(run: Run) -> None:
    printed = run("migrate", "sql", "--url", "postgresql://nowhere.invalid/shop", "--schema", "own")
    assert printed.exit_code == 0
    assert 'create table "own".job' in printed.stdout


def test_a_server_that_was_stopped_is_told_by_the_exit_code(
    run: Run, private_postgres: StartPostgres
) -> None:
    server = private_postgres()
    assert run("status", "--url", server.url).exit_code == 0
    server.stop()
    for words in (
        ["status"],
        ["jobs", "list"],
        ["types", "pause", "--all"],
        ["migrate"],
        ["migrate", "list"],
    ):
        result = run(*words, "--url", server.url)
        assert result.exit_code == Exit.DATABASE
        assert result.stderr.startswith("error[HF043]")


def test_migrating_an_application_subscribes_its_handlers(
    run: Run, absent_sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_URL", absent_sqlite_url)
    (tmp_path / "mailing.py").write_text(
        "from holdfast import Holdfast, Job\n"
        "app = Holdfast()\n"
        "@app.on('order.placed')\n"
        "def mail(job: Job[dict]) -> None: ...\n"
    )
    assert run("migrate", "--app", "mailing:app").exit_code == 0
    with sqlite3.connect(tmp_path / "holdfast.db") as connection:
        rows = connection.execute("select event, handler from holdfast_subscription").fetchall()
    connection.close()
    assert rows == [("order.placed", "mail")]


def test_an_application_and_an_address_are_not_mixed(run: Run) -> None:
    result = run("migrate", "--app", "shop:app", "--url", "sqlite:///other.db")
    assert result.exit_code == Exit.USAGE
    assert "has its own database" in result.stderr
