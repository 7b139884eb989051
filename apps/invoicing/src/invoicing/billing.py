"""Billing classes month by month, and the cycle `classesBilling` that has it done."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import selectinload

import invoicing.reminders  # noqa: F401  A tick runs cycles as registered, and reminders come before billing.
from holdfast import CycleRun, Job, Permanent, Shard, from_env
from invoicing.database import Session, insert_into
from invoicing.emails import request_email
from invoicing.invoices import WITH_EVERYTHING, issue_invoice
from invoicing.jobs import jobs
from invoicing.models import BillingRun, Course, Customer, Enrolment, Invoice, InvoiceLine, Tenant
from invoicing.schemas import BillingReport
from invoicing.service import call_api
from invoicing.tenants import tenants_of


@dataclass(frozen=True, slots=True)
class InvoiceReady:
    """An invoice for classes was issued and should reach its customer."""

    invoice_id: UUID


@jobs.cycle(
    "classesBilling",
    cron=from_env("CLASSES_BILLING_CRON", "30 6 * * *"),
    tz=from_env("CLASSES_BILLING_TIME_ZONE", "Europe/Madrid"),
    sharded=True,
)
async def classes_billing(run: CycleRun) -> None:
    """Have the API bill this month's classes, where that has not happened."""
    report = await call_api(run, "/internal/classes/billing/runs", BillingReport)
    run.counts.processed += report.invoices if report is not None else 0


async def bill_classes(
    session: AsyncSession, on: date, max_items: int, shard: Shard
) -> list[BillingRun]:
    """Bill a month's classes of every tenant that has not been billed for it."""
    runs: list[BillingRun] = []
    for tenant in await tenants_of(session, shard):
        if len(runs) < max_items:
            runs += await bill_tenant(session, tenant, on)
    return runs


async def bill_tenant(session: AsyncSession, tenant: Tenant, on: date) -> list[BillingRun]:
    """Write one invoice per customer; the run's row sees to it that a month is billed once."""
    courses = await _courses(session, tenant, on)
    if not courses:
        return []
    own = {"tenant_id": tenant.id, "month": f"{on:%Y-%m}"}
    claim = insert_into(session, BillingRun).values(invoices=0, **own).on_conflict_do_nothing()
    if not (await session.execute(claim.returning(BillingRun.month))).scalar():
        return []
    lines: dict[Customer, list[InvoiceLine]] = defaultdict(list)
    for course in courses:
        for enrolment in course.enrolments:
            lines[enrolment.customer].append(_line(course, on))
    for customer, positions in lines.items():
        invoice = await issue_invoice(session, tenant, customer, positions, on)
        await jobs.publish(session, "classes.invoice.ready_to_send", InvoiceReady(invoice.id))
    run = await session.get_one(BillingRun, own)
    run.invoices = len(lines)
    await session.flush()
    return [run]


async def _courses(session: AsyncSession, tenant: Tenant, on: date) -> list[Course]:
    taught = (
        select(Course)
        .where(
            Course.tenant_id == tenant.id,
            Course.starts_on <= on,
            or_(Course.ends_on.is_(None), Course.ends_on >= on),
        )
        .order_by(Course.title)
        .options(selectinload(Course.enrolments).joinedload(Enrolment.customer))
    )
    return list(await session.scalars(taught))


def _line(course: Course, on: date) -> InvoiceLine:
    return InvoiceLine(
        description=f"{course.title}, {on:%B %Y}",
        quantity=1,
        unit_price=course.monthly_price,
        tax_rate=course.tax_rate,
    )


@jobs.on("classes.invoice.ready_to_send")
async def send_class_invoice(job: Job[InvoiceReady]) -> None:
    """Have the invoice mailed; the request and this job's completion are one commit."""
    async with Session.begin() as session:
        invoice = await session.get(Invoice, job.input.invoice_id, options=WITH_EVERYTHING)
        if invoice is None:
            raise Permanent(f"there is no invoice {job.input.invoice_id}")
        await request_email(session, invoice)
        await job.complete(tx=session)
