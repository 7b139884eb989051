"""The HTTP API: `uvicorn invoicing.api:api`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import joinedload
from starlette.types import Receive, Scope, Send

from holdfast import HoldfastError
from holdfast.contrib.fastapi import lifespan, mount_dashboard, problem_handler, session
from holdfast_calls import Failed, Found, Ready, ServiceGuard, WaitMs, service_call, wait_or_accept
from invoicing.billing import bill_classes
from invoicing.database import Session
from invoicing.dunning import record_payment, request_dunning
from invoicing.emails import request_email
from invoicing.invoices import WITH_EVERYTHING, find_invoice, issue_invoice
from invoicing.models import (
    Customer,
    Document,
    DocumentStatus,
    Expense,
    Invoice,
    InvoiceLine,
    TaxSnapshot,
    Tenant,
)
from invoicing.pages import router as pages
from invoicing.pdf import file_store, request_pdf
from invoicing.reminders import send_reminders
from invoicing.revenue import list_revenue
from invoicing.schemas import (
    BillingReport,
    CustomerView,
    DeliveryView,
    DunningView,
    ExpenseView,
    InvoiceId,
    InvoiceView,
    NewExpense,
    NewInvoice,
    ReminderReport,
    RevenueView,
    RunRequest,
    SnapshotView,
    show_invoice,
)
from invoicing.taxes import ExpenseCreated
from invoicing.tenants import find_tenant
from invoicing.worker import jobs

api = FastAPI(
    title="Invoicing",
    lifespan=lifespan(jobs),  # an embedded worker runs if OUTBOX_WORKER_ENABLED=true
    exception_handlers={HoldfastError: problem_handler},
)
api.include_router(pages)
mount_dashboard(api, jobs)


async def serve_files(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve the download links of a local directory; a bucket serves its own."""
    await file_store().downloads()(scope, receive, send)


api.mount("/files", serve_files)

bearer = HTTPBearer(auto_error=False)
in_transaction = session(Session)
Db = Annotated[AsyncSession, in_transaction]
"""One transaction per request, committed before the response leaves."""


async def current_tenant(
    token: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
) -> Tenant:
    """Return the tenant whose token came with the request; a short session, as some requests wait."""
    async with Session() as short:
        tenant = None if token is None else await find_tenant(short, token.credentials)
    if tenant is None:
        raise HTTPException(401, "unknown token", {"WWW-Authenticate": "Bearer"})
    return tenant


Current = Annotated[Tenant, Depends(current_tenant)]


async def require_invoice(db: AsyncSession, id: UUID, tenant: Tenant) -> Invoice:
    """Return an invoice; one of another tenant is answered like one that does not exist."""
    invoice = await find_invoice(db, id, tenant)
    if invoice is None:
        raise HTTPException(404, "no such invoice")
    return invoice


@api.get("/customers")
async def list_customers(tenant: Current, db: Db) -> list[CustomerView]:
    """List the tenant's customers."""
    mine = select(Customer).where(Customer.tenant_id == tenant.id).order_by(Customer.name)
    return [CustomerView.model_validate(each) for each in await db.scalars(mine)]


@api.get("/invoices")
async def list_invoices(
    tenant: Current, db: Db, limit: Annotated[int, Query(ge=1, le=200)] = 50
) -> list[InvoiceView]:
    """List the tenant's newest invoices with the state of their PDF and their e-mail."""
    newest = (
        select(Invoice)
        .where(Invoice.tenant_id == tenant.id)
        .order_by(Invoice.issued_on.desc(), Invoice.number.desc())
        .limit(limit)
        .options(*WITH_EVERYTHING)
    )
    return [show_invoice(each) for each in await db.scalars(newest)]


@api.post("/invoices", status_code=201)
async def create_invoice(given: NewInvoice, tenant: Current, db: Db) -> InvoiceView:
    """Issue an invoice."""
    customer = await db.get(Customer, given.customer_id)
    if customer is None or customer.tenant_id != tenant.id:
        raise HTTPException(404, "no such customer")
    owner = await db.get_one(Tenant, tenant.id)
    lines = [InvoiceLine(**each.model_dump()) for each in given.lines]
    today = datetime.now(UTC).date()
    return show_invoice(await issue_invoice(db, owner, customer, lines, today, due_on=given.due_on))


@api.get("/invoices/{invoice_id}")
async def show_one_invoice(invoice_id: InvoiceId, tenant: Current, db: Db) -> InvoiceView:
    """Show an invoice with the state of its PDF and its e-mail."""
    return show_invoice(await require_invoice(db, invoice_id, tenant))


@api.post("/invoices/{invoice_id}/send", status_code=202)
async def send_invoice(invoice_id: InvoiceId, tenant: Current, db: Db) -> DeliveryView:
    """Have an invoice mailed to its customer; asking again is the same delivery."""
    invoice = await require_invoice(db, invoice_id, tenant)
    return DeliveryView.model_validate(await request_email(db, invoice))


@api.post("/invoices/{invoice_id}/dunning", status_code=202)
async def dun_customer(invoice_id: InvoiceId, tenant: Current, db: Db) -> DunningView:
    """Have the customer reminded every two weeks until the invoice is paid; asking again is the same dunning."""
    invoice = await require_invoice(db, invoice_id, tenant)
    return DunningView.model_validate(await request_dunning(db, invoice))


@api.post("/invoices/{invoice_id}/payment")
async def pay_invoice(invoice_id: InvoiceId, tenant: Current, db: Db) -> InvoiceView:
    """Note that an invoice was paid. The signal that ends its dunning is sent in the same transaction."""
    invoice = await require_invoice(db, invoice_id, tenant)
    await record_payment(db, invoice)
    return show_invoice(invoice)


@api.get("/invoices/{invoice_id}/pdf")
async def get_pdf(
    request: Request, invoice_id: InvoiceId, tenant: Current, wait_ms: WaitMs = None
) -> Response:
    """Have the PDF rendered by a worker if that has not happened, and wait for it.

    200 READY with a link, 202 PENDING, 404 for no invoice, or 422 once no attempt is left.
    """

    async def start() -> UUID:
        async with Session.begin() as db:
            return await request_pdf(db, (await require_invoice(db, invoice_id, tenant)).document)

    async def look() -> Found[dict[str, object]]:
        return await find_pdf(invoice_id)

    waited = await wait_or_accept(request, jobs, start, look=look, key=invoice_id, wait_ms=wait_ms)
    return waited.response(
        failed=lambda error: {
            "error": "INVOICE_PDF_RENDER_FAILED",
            "message": getattr(error, "message", error),  # without the advice to operators
        }
    )


async def find_pdf(invoice_id: UUID) -> Found[dict[str, object]]:
    """Look once at an invoice's document and its file."""
    wanted = select(Document).where(Document.invoice_id == invoice_id)
    async with Session() as db:
        document = (
            await db.scalars(
                wanted.options(joinedload(Document.file), joinedload(Document.invoice))
            )
        ).one()
    if document.status is DocumentStatus.FAILED:
        return Failed(document.error)
    if document.file is None:
        return None
    file, name = document.file, f"{document.invoice.number}.pdf"
    return Ready(
        {
            "status": "READY",
            "downloadUrl": await file_store().aio.url(file.key, "10m", filename=name),
            "size": file.size,
            "sha256": file.sha256,
        }
    )


@api.post("/expenses", status_code=201)
async def create_expense(given: NewExpense, tenant: Current, db: Db) -> ExpenseView:
    """Write an expense, and with it the event that brings the tax snapshot up to date."""
    expense = Expense(tenant_id=tenant.id, **given.model_dump())
    db.add(expense)
    await db.flush()
    await jobs.publish(db, "expense.created", ExpenseCreated(expense.id))
    return ExpenseView.model_validate(expense)


@api.get("/tax-snapshots")
async def list_tax_snapshots(tenant: Current, db: Db) -> list[SnapshotView]:
    """List what the tenant spent, by quarter."""
    mine = select(TaxSnapshot).where(TaxSnapshot.tenant_id == tenant.id)
    found = await db.scalars(mine.order_by(TaxSnapshot.quarter))
    return [SnapshotView.model_validate(each) for each in found]


@api.get("/revenue")
async def show_revenue(tenant: Current, db: Db) -> list[RevenueView]:
    """List what the tenant issued and was paid, by month; an invoice is in it a moment after its commit."""
    return [RevenueView.model_validate(each) for each in await list_revenue(db, tenant)]


guard = ServiceGuard(jobs)
guarded = service_call(guard, in_transaction)
"""Lets service calls in, each key once, with the key in the transaction of the work."""


@api.post("/internal/invoices/reminders/run", dependencies=[guarded])
async def run_reminders(given: RunRequest, db: Db) -> ReminderReport:
    """Request the reminders that are due; called by the cycle `invoiceReminders`."""
    return ReminderReport(reminded=await send_reminders(db, given.on, given.max_items, given.part))


@api.post("/internal/classes/billing/runs", dependencies=[guarded])
async def run_billing(given: RunRequest, db: Db) -> BillingReport:
    """Bill a month of classes; called by the cycle `classesBilling`."""
    runs = await bill_classes(db, given.on, given.max_items, given.part)
    return BillingReport(tenants=len(runs), invoices=sum(each.invoices for each in runs))
