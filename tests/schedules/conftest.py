"""Databases for the tests of schedules: PostgreSQL and SQLite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.schedules.scene import ScheduleScene


@pytest.fixture(params=["postgres", "sqlite"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of a prepared database of either kind."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
def scene(url: str) -> Iterator[ScheduleScene]:
    """An application with schedules, and a clock that the test moves."""
    scene = ScheduleScene(url)
    yield scene
    scene.close()
