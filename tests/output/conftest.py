"""Applications with output on both databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.output.scene import OutputScene


@pytest.fixture(params=["postgres", "sqlite"])
def scene(request: pytest.FixtureRequest) -> Iterator[OutputScene]:
    """An application on either database."""
    scene = OutputScene(request.getfixturevalue(f"{request.param}_url"))
    yield scene
    scene.close()
