"""The page on workers, on both sides with workers in processes of their own: those of Celery fork theirs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from tests.from_celery.programs.processes import PROCESS_DIFFERENCES, PROCESSES, ProcessCrew
from tests.notify.servers import redis_server


@pytest.fixture(scope="module", params=["celery", "sqlite", "postgres"])
def crew(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProcessCrew]:
    """A worker of a side in processes, and its tasks."""
    folder = tmp_path_factory.mktemp("crew")
    if request.param == "celery":
        with redis_server() as redis:
            url = f"redis://127.0.0.1:{redis.port}/0"
            with closing(ProcessCrew("celery", folder, url)) as made:
                yield made
        return
    if request.param == "sqlite":
        template: Path = request.getfixturevalue("sqlite_template")
        copy = shutil.copy(template, folder / "holdfast.db")
        database = nullcontext(f"sqlite:///{copy}")
    else:
        database = request.getfixturevalue("postgres_server").database()
    with database as url, closing(ProcessCrew("holdfast_celery", folder, url)) as made:
        yield made


@pytest.mark.parametrize("name", PROCESSES)
def test_a_worker_in_processes_does_what_celery_s_documentation_says(
    name: str, crew: ProcessCrew
) -> None:
    PROCESSES[name](crew)


@pytest.mark.parametrize("says", PROCESS_DIFFERENCES)
def test_what_is_said_to_differ_of_processes_does(says: str, crew: ProcessCrew) -> None:
    act, celery, here = PROCESS_DIFFERENCES[says]
    assert act(crew) == (celery if crew.package == "celery" else here)
