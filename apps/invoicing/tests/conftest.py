"""The application on a database of the test's own: SQLite and PostgreSQL, with files and e-mail in a directory."""

from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path

import pytest
from tests import conftest as shared

from holdfast.testing.kit import Kit
from invoicing.database import Session, migrate_tables, open_engine
from invoicing.seed import seed
from invoicing.worker import jobs

postgres_server = shared.postgres_server
postgres_url = shared.postgres_url
sqlite_url = shared.sqlite_url

TODAY = date(2026, 11, 16)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty database, one of each kind."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files and e-mail go: `files` and `mail` in this directory."""
    monkeypatch.setenv("INVOICING_FILES", str(tmp_path / "files"))
    monkeypatch.setenv("INVOICING_FILES_SECRET", "a secret of this test's own")
    monkeypatch.setenv("INVOICING_MAIL", str(tmp_path / "mail"))
    return tmp_path


@pytest.fixture
async def kit(url: str, place: Path) -> AsyncIterator[Kit]:
    """The application bound to the database, its tables made, and a worker that runs what is due."""
    migrate_tables(url)
    kit = Kit(jobs, url)
    engine = open_engine(url)
    Session.configure(bind=engine)
    yield kit
    await engine.dispose()
    await jobs.aclose()


@pytest.fixture
async def seeded(kit: Kit) -> Kit:
    """The application with three businesses in it."""
    async with Session.begin() as session:
        await seed(session, TODAY)
    return kit
