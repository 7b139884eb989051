"""`invoice.pdf.render.requested`: rendered once, stored once, FAILED only when no attempt is left."""

import copy
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from apps.invoicing.tests.conftest import an_invoice
from sqlalchemy import func, select
from sqlalchemy.orm import joinedload

from holdfast.commands.attempts import reap_leases
from holdfast_testing.kit import Kit
from holdfast_testing.test_clock import TimedDatabase
from invoicing import pdf
from invoicing.database import Session
from invoicing.invoices import find_invoice
from invoicing.models import Document, DocumentStatus, File, Invoice, Tenant
from invoicing.pdf import RenderRequest, file_store, object_key, request_pdf
from invoicing.worker import jobs

RENDER = "invoice.pdf.render.requested"


@pytest.fixture
def renders(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """The invoices that were really rendered."""
    seen: list[UUID] = []
    original: Callable[[Invoice], bytes] = pdf.render

    def render(invoice: Invoice) -> bytes:
        seen.append(invoice.id)
        return original(invoice)

    monkeypatch.setattr(pdf, "render", render)
    return seen


async def ask(invoice: Invoice) -> UUID:
    """Request an invoice's PDF; return the document's id."""
    async with Session.begin() as session:
        tenant = await session.get_one(Tenant, invoice.tenant_id)
        found = await find_invoice(session, invoice.id, tenant)
        assert found is not None
        await request_pdf(session, found.document)
        return found.document.id


async def document(id: UUID) -> Document:
    """Return a document with its file."""
    async with Session() as session:
        return await session.get_one(Document, id, options=[joinedload(Document.file)])


async def break_logo(invoice: Invoice, logo: str = "<svg") -> str:
    """Give the tenant a logo that cannot be drawn; return the one it had."""
    async with Session.begin() as session:
        tenant = await session.get_one(Tenant, invoice.tenant_id)
        before, tenant.logo_svg = tenant.logo_svg, logo
        return before


async def test_a_requested_pdf_is_rendered_stored_and_recorded(seeded: Kit) -> None:
    id = await ask(await an_invoice())
    assert (await document(id)).status is DocumentStatus.PENDING
    await seeded.run_until_idle_async()
    done = await document(id)
    assert done.status is DocumentStatus.READY
    assert done.file is not None
    content = await file_store().aio.get(done.file.key, sha256=done.file.sha256)
    assert content.startswith(b"%PDF-")
    assert (len(content), done.file.content_type) == (done.file.size, "application/pdf")


async def test_asking_again_renders_nothing_again(seeded: Kit, renders: list[UUID]) -> None:
    invoice = await an_invoice()
    for _ in range(3):
        await ask(invoice)
    await seeded.run_until_idle_async()
    await ask(invoice)
    await seeded.run_until_idle_async()
    assert renders == [invoice.id]
    assert len(seeded.started(RENDER)) == 1


async def test_a_second_run_of_a_ready_document_stops_at_once(
    seeded: Kit, renders: list[UUID]
) -> None:
    id = await ask(await an_invoice())
    await seeded.run_until_idle_async()
    async with Session.begin() as session:
        again = await jobs.start(session, pdf.render_pdf, RenderRequest(id))
    await seeded.run_until_idle_async()
    assert (await jobs.aio.chains.get(again.id)).state == "completed"
    assert len(renders) == 1


async def test_an_object_that_a_dead_worker_stored_is_recorded_and_not_rendered_again(
    seeded: Kit, renders: list[UUID]
) -> None:
    invoice = await an_invoice()
    id = await ask(invoice)
    stored = await file_store().aio.put_once(object_key(await document(id)), b"%PDF-1.7 whole")
    await seeded.run_until_idle_async()
    done = await document(id)
    assert done.status is DocumentStatus.READY
    assert done.file is not None
    assert done.file.sha256 == stored.sha256
    assert renders == []


async def test_a_document_is_failed_only_after_the_last_attempt_and_ready_after_a_redrive(
    seeded: Kit,
) -> None:
    invoice = await an_invoice()
    logo = await break_logo(invoice)
    id = await ask(invoice)
    for _ in range(2):
        await seeded.run_until_idle_async()
        assert (await document(id)).status is DocumentStatus.PENDING
        seeded.advance("3m")
    await seeded.run_until_idle_async()
    failed = await document(id)
    assert failed.status is DocumentStatus.FAILED
    assert (failed.error or "").startswith("TypstError: ")
    assert "\n" not in (failed.error or "")
    assert failed.chain_id is not None

    await break_logo(invoice, logo)
    async with Session.begin() as session:
        await jobs.dead_letters.redrive(session, failed.chain_id)
    await seeded.run_until_idle_async()
    assert (await document(id)).status is DocumentStatus.READY


async def reap(kit: Kit) -> None:
    """Take back what dead workers held, by the clock of the test, and run nothing."""
    database = TimedDatabase(kit.app.database, kit._clock.instant)
    await database.run_async(reap_leases(database.store))


async def test_a_document_whose_workers_died_is_failed_too(seeded: Kit) -> None:
    id = await ask(await an_invoice())
    for _ in range(3):
        assert (await document(id)).status is DocumentStatus.PENDING
        seeded.crash(RENDER)
        seeded.advance("61s")
        await reap(seeded)
        seeded.advance("3s")
    await seeded.run_until_idle_async()
    assert (await document(id)).status is DocumentStatus.FAILED


async def test_a_request_for_a_document_that_does_not_exist_is_a_dead_letter(seeded: Kit) -> None:
    id = uuid4()
    async with Session.begin() as session:
        chain = await jobs.start(session, pdf.render_pdf, RenderRequest(id))
    await seeded.run_until_idle_async()
    (job,) = seeded.started(RENDER)
    assert (job.state, job.attempt) == ("failed", 1)
    assert f"there is no document {id}" in (job.error or "")
    assert job.chain_id == chain.id


async def test_the_same_invoice_gives_the_same_bytes(seeded: Kit) -> None:
    ids = [await ask(await an_invoice(each)) for each in range(3)]
    await seeded.run_until_idle_async()
    async with Session() as session:
        assert await session.scalar(select(func.count()).select_from(File)) == 3
        for id in ids:
            done = await session.get_one(Document, id, options=pdf._WITH_INVOICE)
            stored = await file_store().aio.get(object_key(done))
            assert pdf.render(done.invoice) == stored


async def test_every_fact_of_an_invoice_is_on_its_page(
    seeded: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await ask(await an_invoice(0))
    async with Session() as session:
        done = await session.get_one(Document, id, options=pdf._WITH_INVOICE)
        facts = pdf._facts(done.invoice)
        shown = pdf.render(done.invoice)
        for path, value in leaves(facts):
            changed = copy.deepcopy(facts)
            part: Any = changed
            for step in path[:-1]:
                part = part[step]
            part[path[-1]] = other_than(path[-1], value)
            with monkeypatch.context() as patch:
                patch.setattr(pdf, "_facts", lambda _, changed=changed: changed)
                assert pdf.render(done.invoice) != shown, path
    assert b"LibertinusSerif" in shown


def leaves(facts: Any, *path: Any) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Go through the texts of a document, of a list only those of its first element."""
    if isinstance(facts, str):
        yield path, facts
        return
    for step in facts if isinstance(facts, dict) else range(min(1, len(facts))):
        yield from leaves(facts[step], *path, step)


def other_than(name: str, value: str) -> str:
    """Return another text that can be drawn in the same place."""
    if name == "color":
        return "#010203"
    return value.replace("</svg>", '<circle r="9"/></svg>') if name == "logo" else f"{value} 7"
