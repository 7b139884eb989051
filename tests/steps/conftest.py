"""The workshops of the worker's tests, here with durable functions."""

import pytest

from tests.worker.conftest import postgres_workshop, sqlite_workshop, worker_url, workshop
from tests.worker.workshop import Workshop

__all__ = ["postgres_workshop", "sqlite_workshop", "worker_url", "workshop"]


@pytest.fixture(params=["postgres plain", "postgres atomic", "sqlite plain"])
def takeover(request: pytest.FixtureRequest) -> tuple[Workshop, str]:
    """Where a job can be taken over inside of which kind of step: in SQLite an open one holds the whole file."""
    store, kind = request.param.split()
    return request.getfixturevalue(f"{store}_workshop"), kind
