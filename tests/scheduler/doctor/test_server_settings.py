"""The doctor on real servers whose settings hurt: each is named with what was measured and with what mends it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psycopg
import pytest
import pytest_asyncio
from psycopg import Connection, sql

from holdfast.core.worker_presence import WorkerSign
from holdfast.scheduler.doctor import Finding
from holdfast.scheduler.doctor.checks import run_checks
from holdfast.settings import read_settings
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast_postgres.server_checks import check_driver
from tests.support.pgbouncer import pooled
from tests.support.postgres import StartPostgres

SETTINGS = read_settings({})
ROLE = "shopkeeper"


@pytest.fixture
def owner(postgres_url: str) -> Iterator[Connection[Any]]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def role_url(owner: Connection[Any], postgres_url: str) -> Iterator[str]:
    """The address for a role that may do what a worker does."""
    role = sql.Identifier(ROLE)
    owner.execute(sql.SQL("create role {} login password 'secret'").format(role))
    owner.execute(sql.SQL("grant usage on schema holdfast to {}").format(role))
    owner.execute(sql.SQL("grant select on all tables in schema holdfast to {}").format(role))
    place = urlsplit(postgres_url)
    yield place._replace(netloc=f"{ROLE}:secret@{place.hostname}:{place.port}").geturl()
    owner.execute(sql.SQL("drop owned by {0}; drop role {0}").format(role))


@pytest_asyncio.fixture
async def database(role_url: str) -> AsyncIterator[PostgresDatabase]:
    database = PostgresDatabase(role_url)
    yield database
    await database.close_async()


async def found(database: PostgresDatabase) -> dict[str, Finding]:
    return {each.check: each for each in await run_checks(database, SETTINGS)}


def name_of(database: PostgresDatabase) -> str:
    return urlsplit(database.url).path.strip("/")


async def test_without_the_checks_of_a_server_the_doctor_says_how_to_get_them(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.scheduler.doctor.checks.merge", lambda table: {})
    findings = await found(database)
    assert "jit" not in findings
    assert (findings["server"].verdict, findings["server"].fix) == (
        "warning",
        'pip install "holdfast-jobs[postgres]"',
    )


async def test_a_server_as_it_is_installed_has_nothing_that_hurts(
    database: PostgresDatabase,
) -> None:
    names = ("postgresql_version", "primary", "jit", "planner", "timeouts", "autovacuum")
    findings = await found(database)
    assert {name: findings[name].verdict for name in names} == dict.fromkeys(names, "ok")


@pytest.mark.parametrize(
    ("setting", "check", "measured"),
    [
        ("statement_timeout = '20s'", "timeouts", "statement_timeout=20s"),
        ("lock_timeout = 700", "timeouts", "lock_timeout=700"),
        ("idle_in_transaction_session_timeout = '30s'", "timeouts", "session_timeout=30s"),
        ("enable_indexscan = off", "planner", "enable_indexscan=off"),
    ],
)
@pytest.mark.parametrize("where", ["role", "database", "role in database"])
async def test_what_the_role_or_the_database_sets_is_named_and_can_be_taken_back(
    owner: Connection[Any],
    database: PostgresDatabase,
    setting: str,
    check: str,
    measured: str,
    where: str,
) -> None:
    place = {
        "role": f'role "{ROLE}"',
        "database": f'database "{name_of(database)}"',
        "role in database": f'role "{ROLE}" in database "{name_of(database)}"',
    }[where]
    owner.execute(f"alter {place} set {setting}".encode())
    finding = (await found(database))[check]
    assert finding.verdict == "warning"
    assert measured in finding.measured
    assert place.split()[0] in finding.measured
    for statement in finding.fix.split(";"):
        owner.execute(statement.encode())
    await database.close_async()
    assert (await found(database))[check].verdict == "ok"


async def test_what_the_server_sets_for_all_is_named(private_postgres: StartPostgres) -> None:
    server = private_postgres({"autovacuum": "off", "enable_seqscan": "off", "lock_timeout": "1s"})
    database = PostgresDatabase(server.url)
    findings = await found(database)
    assert findings["autovacuum"].verdict == "problem"
    assert findings["planner"].measured == "enable_seqscan=off (command line)"
    # Our own limit is set in its place, but callers' is not.
    assert findings["timeouts"].verdict == "ok"
    await database.close_async()


async def test_a_fleet_that_is_too_large_for_the_server_is_told_what_it_needs(
    private_postgres: StartPostgres,
) -> None:
    database = PostgresDatabase(private_postgres({"max_connections": "20"}).url)
    for number in range(6):
        sign = WorkerSign(f"w-{number}", "w", "host", number, "1", 10, '["mail"]', "{}", None)
        await database.run_async(database.store.workers.sign(sign))
    finding = (await found(database))["connections"]
    assert finding.verdict == "problem"
    assert "max_connections leaves 17; 6 live workers need 10 each" in finding.measured
    assert "raise max_connections to 190" in finding.fix
    await database.close_async()


async def test_a_pooler_that_drops_our_options_leaves_jit_on(other_postgres_url: str) -> None:
    with pooled(other_postgres_url) as url:
        database = PostgresDatabase(url)
        finding = (await found(database))["jit"]
        await database.close_async()
    assert (finding.verdict, finding.measured) == ("warning", "on, jit_above_cost=100000")
    assert finding.fix == 'alter role "postgres" set jit = off;'


async def test_a_replica_is_not_taken_for_a_primary(private_postgres: StartPostgres) -> None:
    server = private_postgres()
    server.stop()
    server.stand_by()
    server.start()
    database = PostgresDatabase(server.url)
    finding = (await found(database))["primary"]
    assert finding.verdict == "problem"
    assert "HOLDFAST_URL" in finding.fix
    await database.close_async()


async def test_the_findings_of_a_stock_server_can_be_printed(other_postgres_url: str) -> None:
    database = PostgresDatabase(other_postgres_url)
    findings = await run_checks(database, SETTINGS)
    assert {each.verdict for each in findings} <= {"ok", "warning"}
    assert msgspec.json.encode(findings)
    await database.close_async()


def test_a_driver_without_parts_that_make_it_fast_is_reported() -> None:
    assert check_driver(()) == []
    (found,) = check_driver(("Connection.lock",))
    assert found.verdict == "warning"
    assert "lacks Connection.lock" in found.measured
    assert "<3.4" in found.fix
