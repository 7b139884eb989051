"""Databases for the tests of streams: PostgreSQL and SQLite, each with a table for what consumers write."""

from __future__ import annotations

import pytest

from holdfast_streams.inbox import broker_loop, inbox_runner, ordered_loop
from tests.streams.inbox_scene import InboxScene
from tests.streams.scene import Scene


@pytest.fixture(autouse=True)
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inboxes of this process that look ten times as often whether to stop, and whether something is due again."""
    for module in (broker_loop, ordered_loop):
        monkeypatch.setattr(module, "FETCH_S", 0.1)
    monkeypatch.setattr(inbox_runner, "DUE_S", 0.1)


@pytest.fixture(params=["postgres", "sqlite"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of a prepared database of either kind; see `ON_EVERY_SERVER`."""
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
