"""Producers of one key at once, each on a connection of its own that is closed with the test."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from holdfast.testing import conformance
from holdfast.testing.conformance import Harness
from tests.contract.conftest import COLOURS, Contract

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONNECTIONS = 70


@pytest_asyncio.fixture(params=list(COLOURS), loop_scope="session")
async def harness(request: pytest.FixtureRequest, contract: Contract) -> AsyncIterator[Harness]:
    """Each store in each colour, with connections for everybody."""
    database = contract.reopen(CONNECTIONS)
    made = COLOURS[request.param](database, contract.tables.read)
    yield made
    await made.close()
    await database.close_async()


class TestConcurrentKeys(conformance.ConcurrentKeysConformance): ...
