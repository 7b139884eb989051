"""Producers of one key at once, each on a connection of its own that is closed with the test."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests import conformance
from tests.conformance import Harness
from tests.contract.conftest import Pair

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONNECTIONS = 70


@pytest_asyncio.fixture(loop_scope="session")
async def harness(pair: Pair) -> AsyncIterator[Harness]:
    """The same, with connections for everybody."""
    database = pair.contract.reopen(CONNECTIONS)
    made = pair.colour(database, pair.contract.tables.read)
    yield made
    await made.close()
    await database.close_async()


class TestConcurrentKeys(conformance.ConcurrentKeysConformance): ...
