"""What the tests of an application share: databases that have its tables, and its commands as processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import pytest

from holdfast import Holdfast
from tests.support.postgres import PostgresServer
from tests.support.until import PATIENCE_S
from tests.support.warm_python import LIBRARIES, WarmProcess

ROOT = Path(__file__).parents[2]

MakeTables: TypeAlias = Callable[[str], None]


@pytest.fixture(scope="session")
def make_tables() -> MakeTables:
    """Make the application's tables in a database; an application's conftest overrides it."""
    raise NotImplementedError


@pytest.fixture(scope="session")
def migrated_server(
    postgres_server: PostgresServer, make_tables: MakeTables
) -> Iterator[PostgresServer]:
    """The server, with the application's tables in each of its databases."""
    with postgres_server.with_tables(make_tables) as server:
        yield server


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory, make_tables: MakeTables) -> Path:
    """A SQLite file with the tables of Holdfast and of the application."""
    path = tmp_path_factory.mktemp("migrated") / "application.db"
    app = Holdfast(f"sqlite:///{path}", hints=False)
    app.migrate()
    make_tables(app.url)
    with app.transaction() as tx:
        # A copy is a database of its own, which gets its identity when it is first opened.
        tx.execute("delete from holdfast_identity")
    app.close()
    return path


@pytest.fixture
def migrated_postgres_url(migrated_server: PostgresServer) -> Iterator[str]:
    """The address of a PostgreSQL database with the application's tables."""
    with migrated_server.database() as url:
        yield url


@pytest.fixture
def migrated_sqlite_url(tmp_path: Path, migrated_file: Path) -> str:
    """The address of a SQLite file with the application's tables."""
    path = tmp_path / "holdfast.db"
    shutil.copyfile(migrated_file, path)
    return f"sqlite:///{path}"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of a database with the application's tables and no rows, one of each kind."""
    return str(request.getfixturevalue(f"migrated_{request.param}_url"))


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest) -> str:
    """The address of a database without the application's tables, one of each kind."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@dataclass(frozen=True, slots=True)
class RunningCommand:
    """A command that runs, and the file of what it says."""

    process: WarmProcess
    log: Path

    async def wait(self) -> int:
        """Wait for its end and return its code."""
        return await asyncio.to_thread(self.process.wait)

    async def kill(self) -> None:
        """End it with -9."""
        self.process.kill()
        await self.wait()


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands of an application whose source is in a directory."""

    source: Path

    def environment(self, url: str, **more: str) -> dict[str, str]:
        """Return the environment of a process that runs the application on a database."""
        path = os.pathsep.join([str(self.source), str(ROOT), os.environ.get("PYTHONPATH", "")])
        return os.environ | {"HOLDFAST_URL": url, "PYTHONPATH": path.rstrip(os.pathsep)} | more

    async def run(self, place: Path, url: str, *command: str, **more: str) -> tuple[int, str, str]:
        """Run a Python module as a process, in a directory, to its end; return its code and what it said."""
        words = ["-m", *command]
        done = await asyncio.to_thread(LIBRARIES.run, words, place, self.environment(url, **more))
        return done.returncode, done.stdout, done.stderr

    @asynccontextmanager
    async def running(
        self, place: Path, url: str, *command: str, **more: str
    ) -> AsyncIterator[RunningCommand]:
        """Run a Python module until the end of the block, then ask it to stop unless it has ended."""
        log = place / f"{command[0]}-{uuid4().hex}.log"
        with log.open("wb") as out:
            words = ["-m", *command]
            process = LIBRARIES.start(words, place, self.environment(url, **more), out)
        running = RunningCommand(process, log)
        try:
            yield running
            if process.poll() is None:
                process.terminate()
                code = await asyncio.to_thread(process.wait, PATIENCE_S)
                assert code in (0, -signal.SIGTERM), log.read_text()
        finally:
            await running.kill()
