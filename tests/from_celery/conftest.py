"""The databases of both kinds, and programs that run on Celery and on Holdfast."""

from collections.abc import Iterator

import pytest

from tests.contrib.conftest import any_url as any_url
from tests.from_celery.sides import Side, celery_side, holdfast_side


@pytest.fixture(
    params=["celery", "sqlite_url", "postgres_url"], ids=["celery", "sqlite", "postgres"]
)
def side(request: pytest.FixtureRequest) -> Iterator[Side]:
    """Celery itself, then the look-alike on each store: what a test with it says is true of all."""
    if request.param == "celery":
        with celery_side() as made:
            yield made
        return
    with holdfast_side(request.getfixturevalue(request.param)) as made:
        yield made
