"""Keys, and an application on each store whose types are sealed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from holdfast import Holdfast, Job, Seal
from holdfast_testing.kit import Kit

OLD, NEW = Seal.new_key(), Seal.new_key()

MakeKit: TypeAlias = Callable[..., Kit]


@dataclass
class Patient:
    name: str
    clinic: str = "north"


def add_types(app: Holdfast) -> Holdfast:
    """Register the types that the tests start."""

    @app.job("letter.write", sealed=True)
    async def write(job: Job[Patient]) -> str:
        return f"Dear {job.input.name}"

    return app


@pytest.fixture(params=["sqlite_url", "postgres_url"], ids=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of each store in turn."""
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def seal() -> Seal:
    return Seal({"new": NEW, "old": OLD})


@pytest.fixture
def make_kit(url: str) -> Iterator[MakeKit]:
    """Make an application on the test's database, with a seal or without."""
    made: list[Kit] = []

    def make(seal: Seal | None, **options: object) -> Kit:
        kit = Kit(add_types(Holdfast(url, seal=seal, **options)), url)  # type: ignore[arg-type]
        made.append(kit)
        return kit

    yield make
    for each in made:
        each.app.close()


@pytest.fixture
def kit(make_kit: MakeKit, seal: Seal) -> Kit:
    return make_kit(seal)
