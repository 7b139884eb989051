"""What the bench measures is the command that people type, on the servers that people have."""

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.bench.command import ROOT, BareWorker, Command, Running, drain
from tests.bench.figures import FIGURES, GROUPS
from tests.bench.handlers import STAMPS_VARIABLE, make_app, numbered_types
from tests.bench.server import ServerMissing, servers, stock_binaries
from tests.bench.site import Filled, fill
from tests.support.absent import skip_because_absent
from tests.support.postgres import PostgresServer
from tests.support.until import until

JOBS = 60
NOBODY = "00000000-0000-0000-0000-000000000000"


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the bench as a process."""
    return subprocess.run(
        [sys.executable, "-m", "tests.bench", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(params=["sqlite_url", "postgres_url", "other_postgres_url"])
def url(request: pytest.FixtureRequest) -> str:
    """A migrated database of each kind that is measured."""
    url: str = request.getfixturevalue(request.param)
    with closing(make_app(url)) as app:
        app.migrate()
    return url


def test_the_subject_is_the_command_that_people_type(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OUTBOX_BATCH_SIZE", "HOLDFAST_SLOTS", "WORKER_NAME"):
        monkeypatch.setenv(name, "200")
    command = Command("postgresql://somewhere/else")
    program, *words = command.argv
    assert Path(program).name == "holdfast"
    assert words == ["worker", "tests.bench.app:app"]
    settings = {name for name in command.environment if name not in os.environ}
    assert settings == {"HOLDFAST_URL", "BENCH_TYPES"}
    assert not {"OUTBOX_BATCH_SIZE", "HOLDFAST_SLOTS", "WORKER_NAME"} & set(command.environment)


def test_a_drain_is_counted_by_the_database_and_costs_are_those_of_the_process(url: str) -> None:
    filled = fill(url, "noop", JOBS)
    drained = drain(Command(url), filled, JOBS)
    assert drained.span.jobs == JOBS
    assert drained.span.seconds > 0
    assert (drained.server_us == 0) == url.startswith("sqlite:")


async def test_a_running_subject_is_that_command_with_its_log_in_a_file(postgres_url: str) -> None:
    with Running(Command(postgres_url, options=("--processes", "2"))) as running:
        await until(lambda: running.log.read_text().count("job type") == 2)
        lines = [each.cmdline() for each in running.family()]
    commands = [line[line.index("worker") :] for line in lines if "worker" in line]
    typed = ["worker", "tests.bench.app:app", "--processes", "2"]
    assert commands == [typed, *([[*typed, "--processes", "1"]] * 2)]


def test_many_types_share_a_backlog(postgres_url: str) -> None:
    names = numbered_types(7)
    filled = fill(postgres_url, names, JOBS)
    assert drain(Command(postgres_url, names), filled, JOBS).span.jobs == JOBS


def test_the_bare_worker_is_measured_the_same_way(postgres_url: str) -> None:
    filled = fill(postgres_url, "noop", JOBS)
    assert drain(BareWorker(postgres_url), filled, JOBS).span.jobs == JOBS


def test_a_worker_that_ends_by_itself_is_shown_with_its_log(postgres_url: str) -> None:
    command = Command(postgres_url, ("stamp",), settings={STAMPS_VARIABLE: "/no/such/folder"})
    with pytest.raises(RuntimeError, match=r"(?s)ended by itself.*No such file or directory"):
        drain(command, Filled(NOBODY, NOBODY, NOBODY), JOBS)


def test_a_stock_server_is_as_its_package_ships_it() -> None:
    try:
        stock_binaries()
    except ServerMissing as error:
        skip_because_absent("PostgreSQL of the system", str(error))
    with servers("both") as (found, missing):
        shown = {each.name.split()[0]: each.settings() for each in found}
        assert missing == []
    assert shown["stock"]["jit"] == "on"
    assert shown["stock"]["shared_buffers"] == "128MB"
    assert shown["stock"]["max_wal_size"] == "1GB"
    assert shown["wheel"]["shared_buffers"] == "1GB"
    assert shown["stock"]["synchronous_commit"] == shown["wheel"]["synchronous_commit"] == "on"


def test_without_a_server_of_the_system_the_bench_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tests.bench.server.SYSTEM_INSTALLATIONS", tmp_path)
    with pytest.raises(ServerMissing, match="--server URL"), servers("stock"):
        pass
    with servers("both") as (found, missing):
        assert [each.name.split()[0] for each in found] == ["wheel"]
        assert "no PostgreSQL" in missing[0]


def test_a_server_of_ones_own_is_measured_and_left_as_it_was(
    other_postgres_server: PostgresServer,
) -> None:
    url = other_postgres_server.url
    before = _databases(url)
    words = ("--tiny", "--server", url, "--only", "drain_in_flight", "-o", "json")
    done = bench(*words)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert {each["server"] for each in results} == {f"yours {other_postgres_server.version}"}
    assert [each["name"] for each in results] == ["drain_in_flight"]
    assert _databases(url) == before


def test_a_role_that_may_create_nothing_is_told_what_it_needs(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("create role bench_without login password 'secret'")
    try:
        place = urlsplit(postgres_url)
        netloc = f"bench_without:secret@{place.hostname}:{place.port}"
        done = bench(
            "--tiny", "--server", place._replace(netloc=netloc).geturl(), "--only", "drain"
        )
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("drop role bench_without")
    assert done.returncode == 2
    assert "CREATEDB" in done.stderr


@pytest.mark.parametrize("server", ["mine", "sqlite:///x.db", "mysql://x"])
def test_a_server_that_cannot_be_meant_is_refused(server: str) -> None:
    done = bench("--server", server)
    assert done.returncode == 2
    assert "neither stock, wheel, both nor a postgresql:// URL" in done.stderr


def test_every_figure_belongs_to_a_group() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(name for names in FIGURES.values() for name in names)


def _databases(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("select datname from pg_database order by 1")]
