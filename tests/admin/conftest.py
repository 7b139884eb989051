"""The service over an application of each store, and callers of every role."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from holdfast.admin.access import Caller, Principal, Role
from holdfast.admin.service import Service
from holdfast.app import Holdfast
from holdfast.core.instants import Instant
from holdfast.settings import read_settings
from tests.cli.scene import Scene
from tests.support.identity import identify


def caller(role: Role, reason: str | None = None) -> Caller:
    """Somebody of a role."""
    return Caller(Principal(f"ana-{role.word}", role), "request-1", reason)


VIEWER = caller(Role.VIEWER)
OPERATOR = caller(Role.OPERATOR, "because")
DEVELOPER = replace(caller(Role.DEVELOPER), reason="because")
LONG_AGO: Instant = 1


@pytest.fixture(params=["sqlite_url", "postgres_url"], ids=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of each store in turn."""
    found: str = request.getfixturevalue(request.param)
    return found


@pytest_asyncio.fixture
async def app(url: str) -> AsyncIterator[Holdfast]:
    """A migrated application that any type may be started in."""
    app = Holdfast(url, open_types=True)
    identify(app.database)
    yield app
    await app.aclose()


@pytest.fixture
def scene(app: Holdfast) -> Scene:
    """The application's database, to be filled."""
    return Scene(app.database)


@pytest.fixture
def service(app: Holdfast) -> Service:
    """Everything that can be asked and done."""
    return Service(app, read_settings({}))
