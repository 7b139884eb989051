"""The pytest plugin: a `holdfast` fixture around the application that `holdfast_app` names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.testing.kit import Kit


@pytest.fixture
def holdfast_app() -> Holdfast:
    """The application under test; override it in your conftest to return yours."""
    from holdfast.app import Holdfast

    return Holdfast(open_types=True)


@pytest.fixture
def holdfast_url(tmp_path: Path) -> str:
    """The database of one test: an empty SQLite file; override it for PostgreSQL."""
    return f"sqlite:///{tmp_path / 'holdfast-test.db'}"


@pytest.fixture
def holdfast(holdfast_app: Holdfast, holdfast_url: str) -> Iterator[Kit]:
    """The testing kit around `holdfast_app`, on a database of this test's own."""
    from holdfast.testing.kit import Kit

    yield Kit(holdfast_app, holdfast_url)
    holdfast_app.close()
