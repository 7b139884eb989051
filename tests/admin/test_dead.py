"""Which dead letters a filter means."""

import pytest

from holdfast.admin.service import Service
from tests.admin.conftest import OPERATOR
from tests.cli.scene import Scene


async def test_a_filter_that_only_looks_like_one_of_states_means_dead_letters(
    service: Service, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.admin.jobs.MAX_AT_ONCE", 1)
    dead = scene.failed(type="state:sync")
    scene.start("state:sync")
    handled = await service.dead_letters.redrive(OPERATOR, filter="type:state:sync")
    assert handled.ids == [dead]
