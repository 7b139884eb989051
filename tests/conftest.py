"""Databases for the tests: a PostgreSQL server per run, a database per test, a file for SQLite.

Under pytest-xdist the controlling process starts the one server and tells its workers the address, in a run of many
processes that of a second version of PostgreSQL too; private servers are started by the worker that needs them.
"""

import gc
import logging
import re
import shutil
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support.absent import report_absent, skip_because_absent
from tests.support.installation import embedded_binaries, other_binaries
from tests.support.laws import STARTED, check_left_behind, is_asked
from tests.support.login_signals import start_programs_with_default_signals
from tests.support.memory import is_wanted, temporary_files_in_memory
from tests.support.postgres import (
    PostgresServer,
    StartPostgres,
    prepare_template,
    serve_for_tests,
    serve_installed,
)
from tests.support.process import QUICK_LOGIN_ROUNDS, PostgresProcess
from tests.support.sqlite import prepare_sqlite_template
from tests.support.until import TEST_TIMEOUT_S

# An example takes as long as the machine makes it take.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

start_programs_with_default_signals()

SHARED_SERVERS = pytest.StashKey[dict[str, PostgresServer]]()
WORKER_INPUT = "postgres_server"
OTHER_WORKER_INPUT = "other_postgres_server"
MANY_PROCESSES = 3
"""So many run the whole suite: then they share the other version's server too, which few tests need."""
_NUMBERS = count()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give each test as long as the machine makes it take, unless `--timeout` says otherwise, and a place to write."""
    if config.option.timeout is None:
        config.option.timeout = TEST_TIMEOUT_S
    stack = ExitStack()
    config.add_cleanup(stack.close)
    stack.enter_context(temporary_files_in_memory())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage: what is collected stays, and need not be looked through in any test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin each process's share with tests that have a timeout of their own: they take long, and the last one of all
    would be waited for alone.
    """
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    if processes == 1:
        return
    long = [each for each in items if each.get_closest_marker("timeout")]
    others = [each for each in items if not each.get_closest_marker("timeout")]
    share = -(-len(others) // processes)
    items[:] = [
        each
        for number in range(processes)
        for each in (*long[number::processes], *others[number * share : (number + 1) * share])
    ]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Start servers before the first xdist worker, and tell every worker where they are."""
    stash = node.config.stash
    if SHARED_SERVERS not in stash:
        stack = ExitStack()
        node.config.add_cleanup(stack.close)
        servers = {WORKER_INPUT: serve_for_tests()}
        other = other_binaries()
        if other is not None and len(node.config.option.tx) >= MANY_PROCESSES:
            servers[OTHER_WORKER_INPUT] = serve_installed(other)
        # Each takes seconds, in which it hardly computes.
        with ThreadPoolExecutor() as threads:
            begun = {
                name: threads.submit(stack.enter_context, each) for name, each in servers.items()
            }
        stash[SHARED_SERVERS] = {name: each.result() for name, each in begun.items()}
    node.workerinput.update({name: asdict(each) for name, each in stash[SHARED_SERVERS].items()})


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Ask the databases of a test whether their rows keep the laws, before anything is tidied up."""
    result = yield
    if is_asked(pyfuncitem):
        check_left_behind(pyfuncitem)
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what could not be tested here."""
    report_absent(terminalreporter)


@pytest.fixture(autouse=True)
def enabled_loggers() -> None:
    """Loggers that the logging configuration of an earlier test, such as Alembic's, has disabled."""
    for name, each in logging.root.manager.loggerDict.items():
        if name.startswith("holdfast") and isinstance(each, logging.Logger):
            each.disabled = False


@pytest.fixture
def tmp_path(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """An empty folder for one test; pytest's own reads all earlier ones to find a name."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    path = tmp_path_factory.getbasetemp() / f"{next(_NUMBERS)}-{name}"
    path.mkdir(mode=0o700)
    yield path
    if is_wanted():
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """The server of this test run."""
    with shared_server(request.config, WORKER_INPUT) or serve_for_tests() as server:
        yield server


def shared_server(
    config: pytest.Config, name: str
) -> AbstractContextManager[PostgresServer] | None:
    """Return the server that the controlling process has started, if it has."""
    told = getattr(config, "workerinput", {}).get(name)
    return PostgresServer(**told).used() if told else None


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of a prepared PostgreSQL database for one test."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture(scope="session")
def other_postgres_server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A server of another version, from the programs found on the machine."""
    shared = shared_server(request.config, OTHER_WORKER_INPUT)
    if shared:
        with shared as server:
            yield server
        return
    binaries = other_binaries()
    if binaries is None:
        skip_because_absent(
            "a second version of PostgreSQL", "On Debian or Ubuntu: apt-get install postgresql"
        )
    with serve_installed(binaries) as server:
        yield server


@pytest.fixture
def other_postgres_url(other_postgres_server: PostgresServer) -> Iterator[str]:
    """The address of a prepared database for one test on the other version."""
    with other_postgres_server.database() as url:
        yield url


@pytest.fixture(scope="session")
def model_postgres() -> Iterator[PostgresProcess]:
    """A stopped server with our schema, as private ones begin."""
    with PostgresProcess(embedded_binaries(), None, QUICK_LOGIN_ROUNDS) as process:
        prepare_template(process.url)
        process.stop()
        yield process


@pytest.fixture
def private_postgres(
    request: pytest.FixtureRequest, model_postgres: PostgresProcess
) -> Iterator[StartPostgres]:
    """Start servers, with settings if given, that the test may stop, crash and restart."""
    started = request.node.stash[STARTED] = []
    with ExitStack() as stack:

        def start(settings: Mapping[str, str] | None = None) -> PostgresProcess:
            process = PostgresProcess(
                embedded_binaries(), settings, QUICK_LOGIN_ROUNDS, model=model_postgres
            )
            started.append(process)
            return stack.enter_context(process)

        yield start


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file that is migrated once, to be copied."""
    path = tmp_path_factory.mktemp("template") / "holdfast.db"
    prepare_sqlite_template(path)
    return path


@pytest.fixture
def sqlite_url(tmp_path: Path, sqlite_template: Path) -> str:
    """The address of a prepared SQLite file for one test."""
    return f"sqlite:///{shutil.copy(sqlite_template, tmp_path / 'holdfast.db')}"


@pytest.fixture
def absent_sqlite_url(tmp_path: Path) -> str:
    """The address of a SQLite file that is not there yet."""
    return f"sqlite:///{tmp_path / 'holdfast.db'}"
