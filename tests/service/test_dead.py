"""Which dead letters a filter means."""

import pytest

from holdfast.service.service import Service
from tests.cli.scene import Scene
from tests.service.conftest import OPERATOR


async def test_a_filter_that_only_looks_like_one_of_states_means_dead_letters(
    service: Service, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.service.dead.MOST_AT_ONCE", 1)
    dead = scene.failed(type="state:sync")
    scene.start("state:sync")
    handled = await service.dead_letters.redrive(OPERATOR, filter="type:state:sync")
    assert handled.ids == [dead]
