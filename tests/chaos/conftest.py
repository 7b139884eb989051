"""The workshops of the worker's tests, here with processes and servers that die, and a primary with its standby.

Whatever a test does to them, the rows it leaves behind keep the laws.
"""

from collections.abc import Iterator

import pytest

from tests.chaos.standby import app, pair
from tests.support.laws import check_rows
from tests.worker.conftest import STORES, postgres_workshop, sqlite_workshop, worker_url
from tests.worker.workshop import Workshop

__all__ = ["app", "pair", "postgres_workshop", "sqlite_workshop", "worker_url", "workshop"]


@pytest.fixture(params=STORES)
def workshop(request: pytest.FixtureRequest) -> Iterator[Workshop]:
    """Each store in turn."""
    made: Workshop = request.getfixturevalue(f"{request.param}_workshop")
    yield made
    check_rows(made.database)
