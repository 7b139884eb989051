"""Command lines run in this process, against a migrated database of either store."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.main import cli
from holdfast.storage.database import Database
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase
from tests.cli.scene import Scene
from tests.support.identity import identify

Run: TypeAlias = Callable[..., Result]


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of whoever runs the tests do not matter."""
    for name in os.environ:
        if name.startswith(("HOLDFAST_", "OUTBOX_", "WORKER_")):
            monkeypatch.delenv(name)


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget afterwards what a command has imported from the test's folder: the next test has a `shop` of its own."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    folder = f"{tmp_path}{os.sep}"
    for name in sys.modules.keys() - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(folder):
            del sys.modules[name]


@pytest.fixture
def run(own_modules: None) -> Run:
    """Run a command line in this process, without a terminal."""

    def run(*arguments: str, input: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(cli, list(arguments), input=input, prog_name="holdfast")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture(params=["sqlite_url", "postgres_url"], ids=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of each store in turn."""
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def database(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A migrated database that commands find by HOLDFAST_URL."""
    monkeypatch.setenv("HOLDFAST_URL", url)
    database: Database
    if url.startswith("sqlite"):
        database = SqliteDatabase(url.removeprefix("sqlite:///"))
    else:
        database = PostgresDatabase(url)
    identify(database)
    yield database
    database.close()


@pytest.fixture
def scene(database: Database) -> Scene:
    """The database of the commands, to be filled."""
    return Scene(database)
