"""Databases for the tests of streams: PostgreSQL and SQLite, each with a table for what consumers write."""

from __future__ import annotations

import pytest

from tests.streams.inbox_scene import InboxScene
from tests.streams.scene import Scene


@pytest.fixture(params=["postgres", "sqlite"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of a prepared database of either kind."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
def scene(url: str, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """An application with streams, and a table."""
    monkeypatch.setenv("HOLDFAST_STREAMS_TAKEOVER_MS", "2000")
    return Scene(url)


@pytest.fixture
def inbox(url: str) -> InboxScene:
    """An application for inboxes, and a table."""
    return InboxScene(url)
