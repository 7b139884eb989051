"""`invoice.pdf.render.requested`: the PDF of an invoice, rendered once and kept in the file store."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as resources
from uuid import UUID

import typst
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import joinedload

from holdfast import Job, Permanent, from_env
from holdfast_files import Files, StoredFile, open_files
from invoicing.database import Session
from invoicing.invoices import add_up
from invoicing.jobs import OUTBOX, first_line, jobs
from invoicing.models import Document, DocumentStatus, File, Invoice, Tenant
from invoicing.settings import read_settings

SYMBOLS = {"EUR": "€", "GBP": "£", "USD": "$"}


@dataclass(frozen=True, slots=True)
class RenderRequest:
    """Which document to render."""

    document_id: UUID


@cache
def file_store() -> Files:
    """Open the file store on first use."""
    settings = read_settings()
    return open_files(settings.files_url, secret=settings.files_secret)


async def request_pdf(session: AsyncSession, document: Document) -> UUID:
    """Have a document rendered, unless it has been requested before; return the chain that does it.

    The key settles who was first.
    """
    if document.chain_id is not None:
        return document.chain_id
    request = RenderRequest(document.id)
    render = await jobs.start(session, render_pdf, request, key=str(document.id), scope="any")
    document.chain_id = render.id
    return render.id


async def note_failure(job: Job[RenderRequest]) -> None:
    """Show a document as FAILED, in one commit with the failure, when its rendering fails for good."""
    async with Session.begin() as session:
        document = await session.get(Document, job.input.document_id)
        if document is not None and document.status is DocumentStatus.PENDING:
            document.status, document.error = DocumentStatus.FAILED, first_line(job.error)
        await job.complete(tx=session)


@jobs.job(
    "invoice.pdf.render.requested",
    retry=OUTBOX,
    on_failed=note_failure,
    concurrency=from_env("PDF_RENDER_CONCURRENCY", 2),
)
async def render_pdf(job: Job[RenderRequest]) -> None:
    """Render, store, record. After a crash each step finds what the one before it has left."""
    async with Session() as session:
        document = await session.get(Document, job.input.document_id, options=_WITH_INVOICE)
    if document is None:
        raise Permanent(f"there is no document {job.input.document_id}")
    if document.status is DocumentStatus.READY:
        return
    stored = await _store(document)
    async with Session.begin() as session:
        document = await session.get_one(Document, document.id)
        document.file = _file(document.tenant_id, stored)
        document.status, document.error = DocumentStatus.READY, None
        await job.complete(tx=session)


async def _store(document: Document) -> StoredFile:
    """Render and store a document, unless an attempt that died before recording it has done so."""
    store, key = file_store().aio, object_key(document)
    if await store.exists(key):
        return await store.verify(key)
    content = await asyncio.to_thread(render, document.invoice)
    return await store.put_once(key, content, "application/pdf")


def object_key(document: Document) -> str:
    """Return where a document is stored: the same on every attempt."""
    return f"{document.tenant_id}/invoices/{document.invoice_id}/{document.id}.pdf"


def render(invoice: Invoice) -> bytes:
    """Make the PDF; the same invoice gives the same bytes."""
    template = resources("invoicing").joinpath("invoice.typ").read_bytes()
    content = typst.compile(
        template, ignore_system_fonts=True, sys_inputs={"invoice": json.dumps(_facts(invoice))}
    )
    assert isinstance(content, bytes)
    return content


def _facts(invoice: Invoice) -> dict[str, object]:
    """What the template shows, as it shows it."""
    tenant, customer, totals = invoice.tenant, invoice.customer, add_up(invoice.lines)

    def money(cents: int) -> str:
        return format_money(cents, tenant)

    return {
        "number": invoice.number,
        "issued": f"{invoice.issued_on:%-d %B %Y}",
        "due": f"{invoice.due_on:%-d %B %Y}",
        "tenant": {
            "name": tenant.name,
            "address": tenant.address,
            "tax_id": tenant.tax_id,
            "iban": tenant.iban,
            "logo": tenant.logo_svg,
            "color": tenant.color,
        },
        "customer": {"name": customer.name, "address": customer.address},
        "lines": [
            {
                "description": line.description,
                "quantity": str(line.quantity),
                "price": money(line.unit_price),
                "tax": format_rate(line.tax_rate),
                "net": money(line.net),
            }
            for line in invoice.lines
        ],
        "net": money(totals.net),
        "taxes": [
            {"rate": format_rate(rate), "amount": money(tax)} for rate, tax in totals.taxes.items()
        ],
        "gross": money(totals.gross),
    }


def format_money(cents: int, tenant: Tenant) -> str:
    """Return an amount as people read it."""
    return f"{SYMBOLS.get(tenant.currency, tenant.currency + ' ')}{cents / 100:,.2f}"


def format_rate(basis_points: int) -> str:
    """Return a tax rate as people read it."""
    return f"{basis_points / 100:g} %"


def _file(tenant_id: UUID, stored: StoredFile) -> File:
    return File(
        tenant_id=tenant_id,
        key=stored.key,
        content_type=stored.content_type,
        size=stored.size,
        sha256=stored.sha256,
    )


_INVOICE = joinedload(Document.invoice)
_WITH_INVOICE = (
    _INVOICE.joinedload(Invoice.tenant),
    _INVOICE.joinedload(Invoice.customer),
    _INVOICE.selectinload(Invoice.lines),
)
