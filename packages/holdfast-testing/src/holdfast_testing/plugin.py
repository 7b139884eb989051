"""The pytest plugin: a `holdfast` fixture around the application that `holdfast_app` names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast_testing.kit import Kit


@pytest.fixture
def holdfast_app() -> Holdfast:
    """The application under test; override it in your conftest to return yours."""
    from holdfast.app import Holdfast

    return Holdfast(open_types=True)


@pytest.fixture(scope="session")
def holdfast_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty SQLite file with Holdfast's tables, which the file of each test is copied from."""
    from holdfast.app import Holdfast

    path = tmp_path_factory.mktemp("holdfast") / "template.db"
    app = Holdfast(f"sqlite:///{path}", hints=False)
    app.migrate()
    with app.transaction() as tx:
        # A copy is a database of its own, which gets its identity when it is first opened.
        tx.execute("delete from holdfast_identity")
    app.close()
    return path


@pytest.fixture
def holdfast_url(tmp_path: Path, holdfast_template: Path) -> str:
    """The database of one test: a SQLite file of its own; override it for PostgreSQL."""
    path = tmp_path / "holdfast-test.db"
    shutil.copyfile(holdfast_template, path)
    return f"sqlite:///{path}"


@pytest.fixture
def holdfast_schema(holdfast_app: Holdfast) -> str:
    """The PostgreSQL schema for tests: not the application's own, and another for each worker of pytest-xdist."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    return f"{holdfast_app.schema}_test{f'_{worker}' if worker else ''}"


@pytest.fixture
def holdfast_connection() -> Any:
    """The connection whose open transaction a test is joined into; None, the default, lets tests commit."""
    return None


@pytest.fixture
def holdfast(
    holdfast_app: Holdfast, holdfast_url: str, holdfast_schema: str, holdfast_connection: Any
) -> Iterator[Kit]:
    """The testing kit around `holdfast_app`, with no jobs of earlier tests."""
    from holdfast_testing.kit import Kit

    if holdfast_connection is None:
        kit = Kit.fresh(holdfast_app, holdfast_url, holdfast_schema)
    else:
        kit = Kit.joined(holdfast_app, holdfast_connection)
    yield kit
    kit.close()
