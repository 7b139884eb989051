"""An application with large values, on each database and each kind of file store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from holdfast import Continue, Holdfast, Job, Seal
from holdfast.commands.explain import look_around, why
from holdfast_files import Files, add_large_values
from holdfast_testing.kit import Kit
from tests.files.conftest import bucket_files, directory_files, running_s3, s3

__all__ = ["bucket_files", "directory_files", "running_s3", "s3"]

MakeKit: TypeAlias = Callable[..., Kit]
SEAL_KEY = Seal.new_key()


def letter(size: int, letter: str = "a") -> dict[str, str]:
    """Return a value whose JSON has more than this many bytes."""
    return {"text": letter * size}


def add_types(app: Holdfast) -> None:
    """Register the types that the tests start."""

    @app.job("measure")
    async def measure(job: Job[dict[str, str]]) -> int:
        return len(job.input["text"])

    @app.job("measure.sealed", sealed=True)
    async def measure_sealed(job: Job[dict[str, str]]) -> dict[str, str]:
        return job.input

    @app.job("echo")
    def echo(job: Job[Any]) -> Any:
        return job.input

    @app.job("repeat")
    async def repeat(job: Job[int]) -> dict[str, str]:
        return letter(job.input)

    @app.job("first")
    async def first(job: Job[int]) -> Continue:
        return Continue("measure", letter(job.input))

    @app.job("measure.all", batch=10)
    async def measure_all(jobs: list[Job[dict[str, str]]]) -> list[int]:
        return [len(each.input["text"]) for each in jobs]

    @app.on("uploaded", name="count")
    async def count(job: Job[dict[str, str]]) -> int:
        return len(job.input["text"])


@pytest.fixture(params=["sqlite_url", "postgres_url"], ids=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of each store in turn."""
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["directory_files", "bucket_files"], ids=["disk", "s3"])
def any_files(request: pytest.FixtureRequest) -> Files:
    """Each kind of file store in turn."""
    found: Files = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def make_kit(url: str) -> Iterator[MakeKit]:
    """Make an application on the test's database, with large values unless it has no files."""
    made: list[Kit] = []

    def make(files: Files | None, seal: Seal | None = None, **options: Any) -> Kit:
        app = Holdfast(url, seal=seal)
        if files is not None:
            add_large_values(app, files, **{"over": "4KB", **options})
        add_types(app)
        made.append(Kit(app, url))
        return made[-1]

    yield make
    for each in made:
        each.app.close()


@pytest.fixture
def kit(make_kit: MakeKit, directory_files: Files) -> Kit:
    return make_kit(directory_files)


@pytest.fixture
def sealed_kit(make_kit: MakeKit, directory_files: Files) -> Kit:
    return make_kit(directory_files, Seal({"k1": SEAL_KEY}))


def start(kit: Kit, target: Any = "measure", input: Any = None, **options: Any) -> Any:
    with kit.app.transaction() as tx:
        return kit.app.start(tx, target, input, **options)


def stored(kit: Kit, id: Any) -> tuple[str, str | None]:
    """Return input and output of a job as the database has them."""
    store = kit.app.database.store
    (record,) = kit.app.database.read(store.jobs.get([str(id)]))
    return record.input, record.output


def stored_files(files: Files) -> list[str]:
    """Return the keys of all files."""
    return [each.key for each in files.list()]


def sentence(kit: Kit, id: object) -> str:
    """Say in one sentence what a job waits for."""
    database = kit.app.database
    (record,) = database.read(database.store.jobs.get([str(id)]))
    return why(record, database.read(look_around(database.store, record)))
