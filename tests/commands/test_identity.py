"""Copies of a database are recognised: restored dumps, promoted clones, copied files. A failover is no copy."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast import Holdfast, Job
from holdfast.core.errors import CopiedDatabase
from holdfast.core.records import Identity
from holdfast.storage.id_generator import new_id
from holdfast.storage.postgres.connection import addresses_of
from holdfast.worker.options import WorkerOptions
from tests.support.installation import embedded_binaries
from tests.support.postgres import StartPostgres
from tests.support.process import QUICK_LOGIN_ROUNDS, PostgresProcess

FORGET = (
    "update holdfast.identity set system_id = null, timeline = 0, started_at = null, hosts = null"
)
RECORDED = "select system_id is not null, started_at is not null, hosts from holdfast.identity"


async def work(url: str, monkeypatch: pytest.MonkeyPatch | None = None, env: str = "") -> int:
    """Run what is due in a database; return how many jobs ran. Raises: CopiedDatabase."""
    if monkeypatch is not None:
        monkeypatch.setenv("HOLDFAST_ENVIRONMENT", env)
    app = Holdfast(url)
    ran: list[str] = []

    @app.job("mail.send")
    def send(job: Job[int]) -> None:
        ran.append(str(job.id))

    try:
        await app.make_worker(WorkerOptions(stop_when_idle=True)).run()
    finally:
        await app.aclose()
    return len(ran)


async def start_on(url: str) -> None:
    """Migrate a database, run a worker on it once, and leave a job."""
    app = Holdfast(url, open_types=True)
    app.migrate()
    await work(url)
    with app.transaction() as tx:
        app.start(tx, "mail.send", 1)
    app.close()


async def adopt(url: str) -> None:
    app = Holdfast(url)
    app.database.run(app.database.store.schema.adopt(new_id()))
    app.close()


def ask(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


def program(name: str, *arguments: str) -> None:
    """Run one of the server's client programs."""
    subprocess.run([embedded_binaries() / name, *arguments], check=True, capture_output=True)


@pytest.fixture
def elsewhere() -> Iterator[PostgresProcess]:
    """A server that was initialised on its own, so that its system identifier is its own too."""
    with PostgresProcess(embedded_binaries(), login_rounds=QUICK_LOGIN_ROUNDS) as server:
        yield server


@pytest.fixture
def original(private_postgres: StartPostgres) -> PostgresProcess:
    return private_postgres()


async def test_a_dump_restored_on_another_server_under_the_same_name_is_a_copy(
    original: PostgresProcess, elsewhere: PostgresProcess, tmp_path: Path
) -> None:
    await start_on(original.url)
    dump = str(tmp_path / "shop.dump")
    program("pg_dump", "--format=custom", f"--file={dump}", original.url)
    program("pg_restore", "--no-owner", f"--dbname={elsewhere.url}", dump)
    for _ in range(2):
        with pytest.raises(CopiedDatabase, match=r"HF045.*another server.*holdfast adopt"):
            await work(elsewhere.url)
        Holdfast(elsewhere.url).migrate()  # must not make it look like the original
    await adopt(elsewhere.url)
    assert await work(elsewhere.url) == 1
    assert await work(original.url) == 1


async def test_a_clone_that_was_promoted_elsewhere_is_a_copy(original: PostgresProcess) -> None:
    await start_on(original.url)
    with PostgresProcess(embedded_binaries(), None, QUICK_LOGIN_ROUNDS, original) as clone:
        ask(clone.url, "select pg_promote()")
        with pytest.raises(CopiedDatabase, match="at another address"):
            await work(clone.url)
        await adopt(clone.url)
        assert await work(clone.url) == 1
        clone.restart()
        assert await work(clone.url) == 0
    assert await work(original.url) == 1


async def test_a_copied_data_directory_on_the_same_timeline_is_a_copy(
    original: PostgresProcess,
) -> None:
    await start_on(original.url)
    original.stop()
    with (
        PostgresProcess(embedded_binaries(), None, QUICK_LOGIN_ROUNDS, model=original) as snapshot,
        pytest.raises(CopiedDatabase, match="at another address"),
    ):
        await work(snapshot.url)
    original.start()
    assert await work(original.url) == 1


async def test_a_promotion_within_the_hosts_of_the_url_is_no_copy(
    original: PostgresProcess,
) -> None:
    with PostgresProcess(embedded_binaries(), None, QUICK_LOGIN_ROUNDS, original) as standby:
        own, other = urlsplit(original.url), urlsplit(standby.url)
        both = own._replace(netloc=f"{own.netloc},{other.hostname}:{other.port}").geturl()
        await start_on(both)
        original.stop()
        ask(standby.url, "select pg_promote()")
        assert await work(both) == 1
        # Recorded since: the server is known under the address of its own, too.
        assert await work(standby.url) == 0


async def test_a_running_server_may_be_reached_by_any_name(original: PostgresProcess) -> None:
    await start_on(original.url)
    other = original.url.replace("127.0.0.1", "127.0.0.2")
    ask(original.url, "update holdfast.identity set hosts = array['db.example:5432']")
    assert await work(original.url) == 1
    assert ask(original.url, RECORDED)[0][2] == [*addresses_of(original.url), "db.example:5432"]
    assert addresses_of(other) != addresses_of(original.url)


async def test_a_restarted_server_at_its_address_is_no_copy(original: PostgresProcess) -> None:
    await start_on(original.url)
    original.restart()
    assert await work(original.url) == 1


async def test_a_database_of_an_earlier_release_is_recorded_and_not_refused(
    postgres_url: str,
) -> None:
    await start_on(postgres_url)
    ask(postgres_url, FORGET)
    assert await work(postgres_url) == 1
    assert ask(postgres_url, RECORDED) == [(True, True, list(addresses_of(postgres_url)))]


async def test_a_copied_file_is_a_copy_and_a_restored_one_is_not(
    sqlite_url: str, tmp_path: Path
) -> None:
    await start_on(sqlite_url)
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    backup = tmp_path / "elsewhere.db"
    shutil.copy(path, backup)
    with pytest.raises(CopiedDatabase, match="created as"):
        await work(f"sqlite:///{backup}")
    assert await work(sqlite_url) == 1
    shutil.copy(backup, path)
    assert await work(sqlite_url) == 1  # what ran since the backup runs again
    await adopt(f"sqlite:///{backup}")
    assert await work(f"sqlite:///{backup}") == 1


@pytest.fixture(params=["postgres_url", "sqlite_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


async def test_a_declared_environment_must_be_the_recorded_one(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await start_on(url)
    with pytest.raises(CopiedDatabase, match=r"environment here is staging; .* is none"):
        await work(url, monkeypatch, "staging")
    await adopt(url)
    assert await work(url, monkeypatch, "staging") == 1
    with pytest.raises(CopiedDatabase, match=r"environment here is qa; .* is staging"):
        await work(url, monkeypatch, "qa")
    monkeypatch.delenv("HOLDFAST_ENVIRONMENT")
    assert await work(url) == 0


def identity(**changes: object) -> Identity:
    fields: dict[str, object] = {
        "id": "i",
        "recorded_name": "shop",
        "name": "shop",
        "paused": False,
        "paused_by": None,
        "paused_at": None,
    }
    return Identity(**fields | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "is_copy"),
    [
        ({}, False),
        ({"name": "staging"}, True),
        ({"recorded_system_id": "1", "system_id": "2"}, True),
        ({"recorded_system_id": "1", "system_id": None}, False),
        ({"recorded_system_id": None, "system_id": "2"}, False),
        ({"is_known_place": False}, True),
        ({"is_known_place": False, "environment": "a", "recorded_environment": "a"}, False),
        ({"environment": "a"}, True),
        ({"recorded_environment": "a"}, False),
        (
            {"recorded_system_id": "1", "system_id": "2", "environment": "a"}
            | {"recorded_environment": "a"},
            True,
        ),
    ],
)
def test_what_is_a_copy(changes: dict[str, object], is_copy: bool) -> None:
    assert (identity(**changes).copied is not None) is is_copy


def test_addresses_that_mean_this_machine_bear_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Web-1")
    monkeypatch.delenv("PGHOST", raising=False)
    for host in ("localhost", "127.0.0.1", "[::1]"):
        assert addresses_of(f"postgresql://{host}/shop") == ("web-1:5432",)
    assert addresses_of("postgresql:///shop?host=/run/postgresql") == ("web-1:5432",)
    assert addresses_of("postgresql:///shop") == ("web-1:5432",)
    several = addresses_of("postgresql://A.example,b.example:6432/shop")
    assert several == ("a.example:5432", "b.example:6432")
    assert addresses_of("postgresql:///?service=shop") == ("service shop",)
    monkeypatch.setitem(os.environ, "PGHOST", "db.example")
    assert addresses_of("postgresql:///shop") == ("db.example:5432",)
