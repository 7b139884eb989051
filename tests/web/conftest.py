"""The API over an application of each store, called in this process without a network."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from starlette.applications import Starlette

from holdfast.admin.access import Principal, Role, new_secret, new_token
from holdfast.app import Holdfast
from holdfast.settings import read_settings
from holdfast.web.app import create
from holdfast.web.middleware import RateLimit
from tests.cli.scene import Scene
from tests.support.identity import identify

HOST = "http://127.0.0.1"


class Api:
    """An API with a token of every role."""

    def __init__(self, served: Starlette, app: Holdfast) -> None:
        self.served = served
        self.app = app
        self._secrets: dict[Role, str] = {}

    def secret(self, role: Role) -> str:
        """The secret of a token of this role, made at the first wish for it."""
        if role not in self._secrets:
            self._secrets[role] = secret = new_secret()
            token = new_token(Principal(f"ana-{role.word}", role), secret)
            self.app.database.run(self.app.database.store.tokens.create(token))
        return self._secrets[role]

    def client(self, role: Role | None = None, peer: str = "127.0.0.1") -> httpx.AsyncClient:
        """A client with a role's token, or without any, that seems to come from a peer."""
        headers = {} if role is None else {"Authorization": f"Bearer {self.secret(role)}"}
        transport = httpx.ASGITransport(self.served, client=(peer, 50_000))
        return httpx.AsyncClient(transport=transport, base_url=HOST, headers=headers)

    async def call(self, role: Role | None, method: str, path: str, **more: Any) -> httpx.Response:
        """Make one request."""
        async with self.client(role) as client:
            return await client.request(method, path, **more)


def waiters(app: Holdfast) -> int:
    """How many chains are waited for in this process."""
    return len(app.aio.chains._waiting._waiters)


@pytest.fixture(params=["sqlite_url", "postgres_url"], ids=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of each store in turn."""
    found: str = request.getfixturevalue(request.param)
    return found


@pytest_asyncio.fixture
async def app(url: str) -> AsyncIterator[Holdfast]:
    """A migrated application with a handler."""
    app = Holdfast(url, open_types=True)

    @app.job("echo")
    async def echo(job: Any) -> Any:
        return job.input

    identify(app.database)
    yield app
    await app.aclose()


@pytest.fixture
def scene(app: Holdfast) -> Scene:
    """The application's database, to be filled."""
    return Scene(app.database)


@pytest_asyncio.fixture
async def api(app: Holdfast) -> AsyncIterator[Api]:
    """The API, with limits that tests do not meet by accident."""
    served = create(app, settings=read_settings({}), run_once_rate=RateLimit(0.001, 3))
    yield Api(served, app)
    await served.state.site.close()
