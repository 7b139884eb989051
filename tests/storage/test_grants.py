"""What roles need: every table is thought of, and an upgrade gives roles what the new version needs in addition."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest
from click.testing import CliRunner

from holdfast.cli.main import cli
from holdfast.scheduler.doctor.checks import run_checks
from holdfast.settings import read_settings
from holdfast.storage.migrations import load_migrations
from holdfast.storage.postgres import migrations
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast_postgres.grants import GRANTS
from tests.docs.test_roles import Cast, place, printed_roles, work

EARLIER_GRANTS = """
grant usage on schema holdfast to {0}_producer, {0}_worker, {0}_operator, {0}_readonly;
grant select, insert on holdfast.job, holdfast.queue, holdfast.blocker, holdfast.chain_key to {0}_producer;
grant insert on holdfast.tally to {0}_producer;
grant update (awaited) on holdfast.queue to {0}_producer;
grant update on holdfast.chain_key to {0}_producer;
grant select on holdfast.jobs, holdfast.lease, holdfast.outcome, holdfast.subscription,
  holdfast.schema_version, holdfast.identity to {0}_producer;
grant select, insert, update, delete on all tables in schema holdfast to {0}_worker, {0}_operator;
revoke all on holdfast.api_token, holdfast.audit from {0}_worker;
revoke insert, update, delete on holdfast.type_setting, holdfast.identity from {0}_worker;
revoke insert, update, delete on holdfast.schema_version from {0}_worker, {0}_operator;
revoke update, delete on holdfast.audit from {0}_operator;
grant select on all tables in schema holdfast to {0}_readonly;
revoke all on holdfast.api_token from {0}_readonly;
"""
"""The printed grants of the version with two steps."""


@pytest.fixture
def earlier(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cast]:
    """The roles of a database of that version."""
    with printed_roles(postgres_url) as cast:
        with monkeypatch.context() as patch:
            patch.setattr(migrations, "load_migrations", lambda name: load_migrations(name)[:2])
            script = migrations.migration_sql("holdfast")
        with psycopg.connect(cast.of("owner"), autocommit=True) as owner:
            owner.execute(script.encode())
            owner.execute(EARLIER_GRANTS.format(cast.prefix).encode())
        yield cast


def test_an_upgrade_gives_roles_what_the_new_version_needs(earlier: Cast) -> None:
    said: list[str] = []
    owner = earlier.app("owner")
    owner.migrate(tell=said.append)
    producer = earlier.app("producer")
    place(producer)
    producer.close()
    work(earlier.app("worker"))
    with psycopg.connect(earlier.of("readonly")) as reader:
        reader.execute("select * from holdfast.gate, holdfast.archive_exports")
    assert [each.partition(":")[0] for each in said if each.startswith("granted")] == [
        f"granted {earlier.named(role)} ({role})"
        for role in ("operator", "producer", "readonly", "worker")
    ]
    said.clear()
    owner.migrate(tell=said.append)
    owner.close()
    assert said == []


def test_an_upgrade_gives_nothing_to_a_role_that_reads_only_some_tables(earlier: Cast) -> None:
    name = earlier.named("readonly")
    with psycopg.connect(earlier.of("owner"), autocommit=True) as owner:
        owner.execute(f"revoke all on holdfast.job from {name}".encode())
    app = earlier.app("owner")
    app.migrate()
    app.close()
    with (
        psycopg.connect(earlier.of("readonly")) as reader,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        reader.execute("select 1 from holdfast.gate")


async def test_the_doctor_says_which_role_lacks_what(earlier: Cast) -> None:
    app = earlier.app("owner")
    app.migrate()
    app.close()
    name = earlier.named("worker")
    database = PostgresDatabase(earlier.of("worker"))

    async def check() -> tuple[str, str, str]:
        findings = await run_checks(database, read_settings({}))
        (found,) = [each for each in findings if each.check == "privileges"]
        return found.verdict, found.measured, found.fix or ""

    assert (await check())[0] == "ok"
    with psycopg.connect(earlier.of("owner"), autocommit=True) as owner:
        owner.execute(f"revoke delete on holdfast.gate, holdfast.wakeup from {name}".encode())
    verdict, measured, fix = await check()
    await database.close_async()
    assert verdict == "problem"
    assert measured == f"{name} (worker) lacks select, insert, update, delete on gate, wakeup"
    assert f"holdfast grants worker={name}" in fix


def test_every_table_is_granted_to_workers_or_withheld_on_purpose() -> None:
    made = {
        name
        for step in load_migrations(migrations.PACKAGE)
        for name in re.findall(r"^create (?:table|view) holdfast\.(\w+)", step.text, re.MULTILINE)
    }
    for kind, withheld in {
        "worker": {"api_token", "audit"},
        "operator": set(),
        "readonly": {"api_token"},
    }.items():
        granted = {table for _, tables in GRANTS[kind] for table in tables}  # type: ignore[index]
        assert made - granted == withheld, kind


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["worker"], "a role is given as ROLE=NAME"),
        (["boss=me"], "'boss' is no role"),
        (["--url", "sqlite:///a.db"], "SQLite has no roles"),
    ],
)
def test_what_cannot_be_granted_is_refused(words: list[str], text: str) -> None:
    address = [] if "--url" in words else ["--url", "postgresql://db/shop"]
    result = CliRunner().invoke(cli, ["grants", *words, *address], prog_name="holdfast")
    assert result.exit_code == 2
    assert text in result.output


def test_grants_are_printed_for_the_roles_and_the_schema_that_were_named() -> None:
    words = ["grants", "worker=shop-worker", "--url", "postgresql://db/shop", "--schema", "jobs"]
    printed = CliRunner().invoke(cli, words, prog_name="holdfast").stdout
    assert 'grant usage on schema "jobs" to "shop-worker";' in printed
    assert 'on "jobs"."identity" to "shop-worker";' in printed
    assert "holdfast_producer" not in printed
