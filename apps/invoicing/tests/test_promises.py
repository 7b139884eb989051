"""What the application promises beside single jobs: waits that end, a hundred invoices at once, silent copies."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from apps.invoicing.tests.conftest import TODAY, Login, an_invoice, run_command, running
from apps.invoicing.tests.test_emails import ask as ask_for_email
from apps.invoicing.tests.test_pdf import RENDER
from psycopg import sql
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.support.postgres import with_database
from tests.support.reuse import dismiss
from tests.support.until import until

from holdfast_testing.kit import Kit
from invoicing import api
from invoicing.database import Session
from invoicing.invoices import WITH_EVERYTHING
from invoicing.models import Document, DocumentStatus, Invoice
from invoicing.pdf import file_store, request_pdf
from invoicing.seed import seed
from invoicing.worker import jobs

DRAIN = ("holdfast", "worker", "invoicing.worker:jobs", "--drain")


@pytest.fixture
def url(migrated_postgres_url: str) -> str:
    """A real PostgreSQL."""
    return migrated_postgres_url


async def test_waits_whose_clients_are_gone_leave_no_looks_behind(
    seeded: Kit, login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, find = [], api.find_pdf

    async def look(document_id: object) -> object:
        looks.append(document_id)
        return await find(document_id)  # type: ignore[arg-type]

    monkeypatch.setattr(api, "find_pdf", look)
    client, invoice = login(0), await an_invoice()
    before = len(requests())
    path = f"/invoices/{invoice.id}/pdf"
    waiting = [asyncio.create_task(client.get(path, params={"waitMs": 30_000})) for _ in range(50)]
    await until(lambda: looks and len(requests()) == before + 50)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    left = time.monotonic()
    await until(lambda: len(requests()) == before)
    assert time.monotonic() - left < 15
    assert len(seeded.started(RENDER)) == 1


def requests() -> list[asyncio.Task[object]]:
    """The requests that the server of this test is working on."""
    return [each for each in asyncio.all_tasks() if "run_asgi" in repr(each.get_coro())]


@asynccontextmanager
async def two_workers(place: Path, url: str) -> AsyncIterator[None]:
    """Two worker processes, both there when the block begins, and stopped after it."""
    words = ("holdfast", "worker", "invoicing.worker:jobs")
    async with running(place, url, *words) as one, running(place, url, *words) as other:
        await until(lambda: len(jobs.workers.list()) == 2)
        yield
    assert one.process.returncode == other.process.returncode == 0


async def test_a_hundred_invoices_at_once_are_ready_with_two_processes(
    kit: Kit, url: str, place: Path
) -> None:
    async with Session.begin() as session:
        await seed(session, TODAY, invoices=34)
    async with two_workers(place, url):
        async with Session.begin() as session:
            some = select(Invoice).limit(100).options(*WITH_EVERYTHING)
            for invoice in await session.scalars(some):
                await request_pdf(session, invoice.document)
        await until(lambda: not jobs.jobs.list("state:pending,running,blocked", limit=1).items)
    async with Session() as session:
        statuses = Counter(await session.scalars(select(Document.status)))
    assert statuses == {DocumentStatus.READY: 100, DocumentStatus.PENDING: 2}
    assert len(list(file_store().list())) == 100
    assert len({each.worker for each in kit.started(RENDER)}) == 2


@pytest.fixture
def copy(url: str) -> Iterator[str]:
    """The address of a database that is not there yet, beside the test's own."""
    name = f"copy_{uuid4().hex}"
    yield with_database(url, name)
    with psycopg.connect(with_database(url, "postgres"), autocommit=True) as connection:
        connection.execute(
            sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
        )


async def restore(url: str, copy: str) -> None:
    """Copy a database as it is, as a restored backup would be."""
    await cast(AsyncEngine, Session.kw["bind"]).dispose()
    await jobs.aclose()
    dismiss(url)  # nobody may be connected
    names = [sql.Identifier(urlsplit(each).path[1:]) for each in (copy, url)]
    with psycopg.connect(with_database(url, "postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {} template {}").format(*names))


async def test_a_restored_copy_sends_nothing_until_it_is_adopted(
    seeded: Kit, url: str, place: Path, copy: str
) -> None:
    id = await ask_for_email((await an_invoice()).id)
    await restore(url, copy)
    code, _, err = await run_command(place, copy, *DRAIN)
    assert code != 0
    assert "holdfast adopt" in err
    assert not (place / "mail").exists()
    adopting = ("holdfast", "adopt", "--yes", "--reason", "a rehearsal")
    code, _, err = await run_command(place, copy, *adopting)
    assert code == 0, err
    code, _, err = await run_command(place, copy, *DRAIN)
    assert code == 0, err
    assert [each.name for each in (place / "mail").iterdir()] == [f"{id}.eml"]
