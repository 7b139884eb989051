"""The web page: a tenant's invoices with the state of their PDF and e-mail, and a button for each action.

Rendered here, and drawn again by a small script while jobs run. Everything works without the script too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime
from importlib.resources import files as resources
from typing import Annotated, Any
from urllib.parse import parse_qs
from uuid import UUID

from fastapi import APIRouter, Cookie, Depends, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast.contrib.fastapi import session
from invoicing.billing import bill_tenant
from invoicing.database import Session
from invoicing.emails import request_email
from invoicing.invoices import WITH_EVERYTHING, find_invoice, issue_invoice
from invoicing.jobs import jobs
from invoicing.models import Customer, Expense, Invoice, InvoiceLine, TaxSnapshot, Tenant
from invoicing.pdf import file_store, format_money, request_pdf
from invoicing.reminders import remind_tenant
from invoicing.schemas import InvoiceId, show_invoice
from invoicing.seed import BUSINESSES
from invoicing.taxes import ExpenseCreated
from invoicing.tenants import find_tenant

SHOWN = 50
FORM_LIMIT = 10_000
COOKIE = "invoicing"
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
STATIC = {"icon.svg": "image/svg+xml", "page.css": "text/css", "page.js": "text/javascript"}
DONE = {
    "invoice": "The invoice was issued.",
    "expense": "The expense was recorded.",
    "render": "The PDF is being created.",
    "send": "The e-mail is on its way.",
    "reminders": "Overdue reminders are on their way.",
    "billing": "This month's classes are billed.",
}

router = APIRouter(include_in_schema=False)
templates = Environment(
    loader=PackageLoader("invoicing"), autoescape=True, undefined=StrictUndefined
)
Db = Annotated[AsyncSession, session(Session)]
Form = dict[str, str]


async def visitor(
    db: Db, token: Annotated[str | None, Cookie(alias=COOKIE)] = None
) -> Tenant | None:
    """Return the tenant who is signed in."""
    return await find_tenant(db, token) if token else None


async def signed_in(tenant: Annotated[Tenant | None, Depends(visitor)]) -> Tenant:
    """Return the tenant who is signed in, or send the visitor to where that happens."""
    if tenant is None:
        raise HTTPException(303, headers={"Location": "/"})
    return tenant


async def read_form(request: Request) -> Form:
    """Read what a form of this page sent; forms of other sites are refused."""
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise HTTPException(403, "cross-site requests are not allowed")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > FORM_LIMIT:
            raise HTTPException(413, "the form is too large")
    fields = parse_qs(body.decode(errors="replace"), keep_blank_values=True)
    return {name: values[0].strip() for name, values in fields.items()}


Visitor = Annotated[Tenant | None, Depends(visitor)]
Current = Annotated[Tenant, Depends(signed_in)]
Sent = Annotated[Form, Depends(read_form)]


def _static(name: str, media_type: str) -> Callable[[], Awaitable[Response]]:
    content = resources("invoicing").joinpath("static", name).read_bytes()

    async def serve() -> Response:
        return Response(content, headers=HEADERS, media_type=media_type)

    return serve


for _name, _type in STATIC.items():
    router.get(f"/static/{_name}")(_static(_name, _type))


def _page(template: str, status: int = 200, **facts: Any) -> Response:
    content = templates.get_template(template).render(facts)
    return HTMLResponse(content, status, HEADERS)


def _back(done: str = "") -> Response:
    return RedirectResponse(f"/?done={done}" if done else "/", 303, HEADERS)


@router.get("/")
async def show_page(tenant: Visitor, db: Db, done: str = "") -> Response:
    """Show a tenant's invoices, or ask who is there."""
    if tenant is None:
        return await _ask_who(db)
    customers = select(Customer).where(Customer.tenant_id == tenant.id).order_by(Customer.name)
    return _page(
        "invoices.html",
        tenant=tenant,
        customers=list(await db.scalars(customers)),
        today=_today(),
        done=DONE.get(done),
        **await _rows(db, tenant),
    )


@router.get("/rows")
async def show_rows(tenant: Current, db: Db) -> Response:
    """Show only what changes while jobs run; the page's script asks for it."""
    return _page("rows.html", tenant=tenant, **await _rows(db, tenant))


async def _rows(db: AsyncSession, tenant: Tenant) -> dict[str, Any]:
    newest = (
        select(Invoice)
        .where(Invoice.tenant_id == tenant.id)
        .order_by(Invoice.issued_on.desc(), Invoice.number.desc())
        .limit(SHOWN)
        .options(*WITH_EVERYTHING)
    )
    snapshots = select(TaxSnapshot).where(TaxSnapshot.tenant_id == tenant.id)
    return {
        "invoices": [show_invoice(each) for each in await db.scalars(newest)],
        "snapshots": list(await db.scalars(snapshots.order_by(TaxSnapshot.quarter.desc()))),
        "money": lambda cents: format_money(cents, tenant),
        "is_overdue": lambda each: each.status == "OPEN" and each.due_on < _today(),
    }


async def _ask_who(db: AsyncSession, status: int = 200, error: str = "") -> Response:
    """Ask for a token; the businesses of the seed are a click away where they exist."""
    seeded = [each for each in BUSINESSES if await find_tenant(db, each.token)]
    return _page("sign_in.html", status, businesses=seeded, error=error)


@router.post("/sign-in")
async def sign_in(form: Sent, db: Db) -> Response:
    """Remember a tenant's token in a cookie that scripts and other sites do not get."""
    token = form.get("token", "")
    if not token or await find_tenant(db, token) is None:
        return await _ask_who(db, 401, "That token is unknown.")
    answer = _back()
    answer.set_cookie(COOKIE, token, httponly=True, samesite="strict")
    return answer


@router.post("/sign-out")
async def sign_out(_: Sent) -> Response:
    """Forget the token."""
    answer = _back()
    answer.delete_cookie(COOKIE)
    return answer


@router.post("/do/render/{invoice_id}")
async def render(invoice_id: InvoiceId, tenant: Current, db: Db, _: Sent) -> Response:
    """Have a PDF rendered."""
    await request_pdf(db, (await _require(db, invoice_id, tenant)).document)
    return _back("render")


@router.post("/do/send/{invoice_id}")
async def send(invoice_id: InvoiceId, tenant: Current, db: Db, _: Sent) -> Response:
    """Have an invoice mailed."""
    await request_email(db, await _require(db, invoice_id, tenant))
    return _back("send")


@router.get("/download/{invoice_id}")
async def download(invoice_id: InvoiceId, tenant: Current, db: Db) -> Response:
    """Lead to a PDF that is ready."""
    invoice = await _require(db, invoice_id, tenant)
    file = invoice.document.file
    if file is None:
        raise HTTPException(404, "the PDF is not ready")
    link = await file_store().aio.url(file.key, "10m", filename=f"{invoice.number}.pdf")
    return RedirectResponse(link, 303, HEADERS)


@router.post("/do/reminders")
async def run_reminders(tenant: Current, db: Db, _: Sent) -> Response:
    """Remind of what is overdue, as the cycle does on working days."""
    await remind_tenant(db, tenant, _today())
    return _back("reminders")


@router.post("/do/billing")
async def run_billing(tenant: Current, db: Db, _: Sent) -> Response:
    """Bill this month's classes, as the cycle does."""
    await bill_tenant(db, await db.get_one(Tenant, tenant.id), _today())
    return _back("billing")


@router.post("/do/invoice")
async def create(form: Sent, tenant: Current, db: Db) -> Response:
    """Issue an invoice with one line."""
    customer = await db.get(Customer, _uuid(form.get("customer", "")))
    if customer is None or customer.tenant_id != tenant.id:
        raise HTTPException(404, "no such customer")
    line = InvoiceLine(
        description=_words(form), quantity=1, unit_price=_cents(form), tax_rate=_tax_rate(tenant)
    )
    await issue_invoice(db, await db.get_one(Tenant, tenant.id), customer, [line], _today())
    return _back("invoice")


@router.post("/do/expense")
async def spend(form: Sent, tenant: Current, db: Db) -> Response:
    """Write an expense and its event."""
    net = _cents(form)
    expense = Expense(
        tenant_id=tenant.id,
        description=_words(form),
        spent_on=_today(),
        net=net,
        tax=net * _tax_rate(tenant) // 10_000,
    )
    db.add(expense)
    await db.flush()
    await jobs.publish(db, "expense.created", ExpenseCreated(expense.id))
    return _back("expense")


async def _require(db: AsyncSession, id: UUID, tenant: Tenant) -> Invoice:
    invoice = await find_invoice(db, id, tenant)
    if invoice is None:
        raise HTTPException(404, "no such invoice")
    return invoice


def _tax_rate(tenant: Tenant) -> int:
    """Return the usual rate of a tenant's country, by its tax number."""
    return {"GB": 2000, "ES": 2100}.get(tenant.tax_id[:2], 1900)


def _words(form: Form) -> str:
    text = form.get("description", "")
    if not 0 < len(text) <= 200:
        raise HTTPException(422, "a description must have 1 to 200 characters")
    return text


def _cents(form: Form) -> int:
    try:
        cents = round(float(form.get("amount", "")) * 100)
    except (ValueError, OverflowError):
        raise HTTPException(422, "the amount is not a number") from None
    if not 0 < cents <= 1_000_000_00:
        raise HTTPException(422, "the amount must be between 0.01 and 1,000,000")
    return cents


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _today() -> date:
    return datetime.now(UTC).date()
