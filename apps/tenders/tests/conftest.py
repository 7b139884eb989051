"""The application on a database of the test's own: SQLite and PostgreSQL."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests import conftest as shared

from holdfast.testing.kit import Kit
from tenders.database import Session, migrate_tables, open_engine
from tenders.local.push_server import PushServer
from tenders.worker import jobs

postgres_server = shared.postgres_server
postgres_url = shared.postgres_url
sqlite_url = shared.sqlite_url

SOURCE = Path(__file__).parents[1] / "src"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty database, one of each kind."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
async def kit(url: str) -> AsyncIterator[Kit]:
    """The application bound to the database, its tables made, and a worker that runs what is due."""
    migrate_tables(url)
    kit = Kit(jobs, url)
    engine = open_engine(url)
    Session.configure(bind=engine)
    yield kit
    await engine.dispose()
    await jobs.aclose()


@pytest.fixture
def push_log(tmp_path: Path) -> Path:
    """The file in which the push service logs what it accepted."""
    return tmp_path / "pushes.jsonl"


@pytest.fixture
def server(push_log: Path) -> Iterator[PushServer]:
    """A push service with an empty log."""
    server = PushServer(push_log)
    yield server
    server.close()


def environment(url: str, **more: str) -> dict[str, str]:
    """Return the environment of a process that runs the application on a database."""
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return os.environ | {"HOLDFAST_URL": url, "PYTHONPATH": path} | more


async def run_command(place: Path, url: str, *command: str, **more: str) -> tuple[int, str, str]:
    """Run a Python module as a process, in a directory, to its end; return its code and what it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *command,
        cwd=place,
        env=environment(url, **more),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()
