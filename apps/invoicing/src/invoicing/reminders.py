"""Reminders of overdue invoices, and the cycle `invoiceReminders` that has them sent on working days."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from sqlalchemy import and_, exists, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast import CycleRun, Shard, from_env
from invoicing.emails import request_email
from invoicing.invoices import WITH_EVERYTHING
from invoicing.jobs import jobs
from invoicing.models import Dunning, Invoice, InvoiceStatus, Reminder, Tenant
from invoicing.schemas import ReminderReport
from invoicing.service import MAX_ITEMS, call_api
from invoicing.tenants import tenants_of

DAYS_BETWEEN = 7
HIGHEST_LEVEL = 3


@jobs.cycle(
    "invoiceReminders",
    cron=from_env("INVOICE_REMINDERS_CRON", "0 9 * * mon-fri"),
    tz=from_env("INVOICE_REMINDERS_TIME_ZONE", "Europe/Berlin"),
    sharded=True,
)
async def invoice_reminders(run: CycleRun) -> None:
    """Have the API send the reminders that are due."""
    report = await call_api(run, "/internal/invoices/reminders/run", ReminderReport)
    run.counts.processed += report.reminded if report is not None else 0


async def send_reminders(session: AsyncSession, on: date, max_items: int, shard: Shard) -> int:
    """Request a reminder of every overdue invoice: a week after the last one, three at most."""
    return await _send(session, on, max_items, await tenants_of(session, shard))


async def remind_tenant(session: AsyncSession, tenant: Tenant, on: date) -> int:
    """Do the same for one tenant."""
    return await _send(session, on, MAX_ITEMS, [tenant])


async def _send(session: AsyncSession, on: date, max_items: int, tenants: Sequence[Tenant]) -> int:
    is_due = or_(
        Reminder.level.is_(None),
        and_(
            Reminder.level < HIGHEST_LEVEL,
            Reminder.reminded_on <= on - timedelta(days=DAYS_BETWEEN),
        ),
    )
    overdue = (
        select(Invoice, Reminder)
        .outerjoin(Reminder, Reminder.invoice_id == Invoice.id)
        .where(
            Invoice.tenant_id.in_([each.id for each in tenants]),
            Invoice.status == InvoiceStatus.OPEN,
            Invoice.due_on < on,
            is_due,
            # Those are reminded by a function of their own, see dunning.py.
            ~exists().where(Dunning.invoice_id == Invoice.id),
        )
        .order_by(Invoice.due_on, Invoice.id)
        .limit(max_items)
        .options(*WITH_EVERYTHING)
    )
    found = (await session.execute(overdue)).all()
    for invoice, reminder in found:
        await _remind(session, invoice, reminder, on)
    return len(found)


async def _remind(
    session: AsyncSession, invoice: Invoice, reminder: Reminder | None, on: date
) -> None:
    if reminder is None:
        reminder = Reminder(invoice_id=invoice.id, level=0)
        session.add(reminder)
    reminder.level += 1
    reminder.reminded_on = on
    await request_email(session, invoice, purpose=f"reminder-{reminder.level}")
