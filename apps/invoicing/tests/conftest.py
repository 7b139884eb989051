"""The application on a database of the test's own: SQLite and PostgreSQL, with files and e-mail in a directory."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path

import httpx
import pytest
import uvicorn
from sqlalchemy import select
from tests import conftest as shared
from tests.support import application
from tests.support.application import Commands, MakeTables
from tests.support.saved_rows import BeginWith
from tests.support.serving import authorities
from tests.support.until import until

from holdfast.contrib.sqlalchemy_url import open_async_engine
from holdfast_testing.kit import Kit
from invoicing.api import api
from invoicing.database import Session, migrate_tables
from invoicing.models import Invoice
from invoicing.pdf import file_store
from invoicing.seed import BUSINESSES, seed
from invoicing.tenants import find_tenant
from invoicing.worker import jobs

postgres_server = shared.postgres_server
postgres_url = shared.postgres_url
sqlite_template = shared.sqlite_template
sqlite_url = shared.sqlite_url

migrated_server = application.migrated_server
migrated_file = application.migrated_file
migrated_postgres_url = application.migrated_postgres_url
migrated_sqlite_url = application.migrated_sqlite_url
url = application.url
empty_url = application.empty_url

TOKEN = "a service token of the tests"
TODAY = date(2026, 11, 16)
SEED = BeginWith()
SOURCE = Path(__file__).parents[1] / "src"
COMMANDS = Commands(SOURCE)

environment = COMMANDS.environment
run_command = COMMANDS.run
running = COMMANDS.running

Login = Callable[[int], httpx.AsyncClient]


@pytest.fixture(scope="session")
def make_tables() -> MakeTables:
    """Make the application's tables in a database."""
    return migrate_tables


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose `files` and `mail` get what the application makes."""
    file_store.cache_clear()
    monkeypatch.setenv("INVOICING_FILES", str(tmp_path / "files"))
    monkeypatch.setenv("INVOICING_MAIL", str(tmp_path / "mail"))
    monkeypatch.setenv("WORKER_API_SERVICE_TOKEN", TOKEN)
    return tmp_path


@pytest.fixture
async def kit(url: str, place: Path) -> AsyncIterator[Kit]:
    """The application bound to the database, and a worker that runs what is due."""
    kit = Kit(jobs, url)
    engine = open_async_engine(url)
    Session.configure(bind=engine)
    yield kit
    await engine.dispose()
    await jobs.aclose()


@pytest.fixture
async def seeded(kit: Kit, url: str) -> Kit:
    """The application with three businesses in it, and nothing left to do."""

    async def write() -> None:
        async with Session.begin() as session:
            await seed(session, TODAY)
        await kit.run_until_idle_async()

    await SEED.fill(url, write)
    return kit


@asynccontextmanager
async def serve() -> AsyncIterator[str]:
    """Serve the API on a free port of this machine, on the test's own loop; yield its address."""
    server = uvicorn.Server(uvicorn.Config(api, log_level="warning", timeout_graceful_shutdown=1))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await until(lambda: server.started or serving.done())
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


@pytest.fixture
async def address(seeded: Kit) -> AsyncIterator[str]:
    """The address of the API, with three businesses behind it."""
    async with serve() as address:
        yield address


@pytest.fixture
async def login(address: str) -> AsyncIterator[Login]:
    """Makes clients of the API, each with the token of one business."""
    clients: list[httpx.AsyncClient] = []

    def make(position: int) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {BUSINESSES[position].token}"}
        limits = httpx.Limits(max_connections=100)
        client = httpx.AsyncClient(
            base_url=address, headers=headers, timeout=60, limits=limits, verify=authorities()
        )
        clients.append(client)
        return client

    yield make
    for each in clients:
        await each.aclose()


async def an_invoice(position: int = 0) -> Invoice:
    """Return an invoice of one business, as it is in its table."""
    async with Session() as session:
        tenant = await find_tenant(session, BUSINESSES[position].token)
        assert tenant is not None
        mine = select(Invoice).where(Invoice.tenant_id == tenant.id).order_by(Invoice.number)
        return (await session.scalars(mine.limit(1))).one()
