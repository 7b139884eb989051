"""The page on workers, on both sides. A process has one worker of Celery's at a time, so these are apart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.from_celery.programs.workers import WORKERS, Crew
from tests.from_celery.sides import open_side


@pytest.fixture(scope="module", params=["celery", "sqlite", "postgres"])
def crew(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Crew]:
    """A worker of a side, and its tasks."""
    with open_side(request, tmp_path_factory.mktemp("crew")) as side:
        side.app.conf.task_track_started = True
        made = Crew(side)
        with side.work():
            yield made


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_does_what_celery_s_documentation_says(name: str, crew: Crew) -> None:
    crew.begin()
    WORKERS[name](crew)
