"""`invoice.dunning.requested`: reminds a customer until the payment comes, for weeks, and hands over in the end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from holdfast import Job, SignalTimeout
from invoicing.database import Session
from invoicing.emails import request_email
from invoicing.invoices import WITH_EVERYTHING, add_up
from invoicing.jobs import OUTBOX, jobs
from invoicing.models import Dunning, DunningStatus, Invoice, InvoiceStatus
from invoicing.revenue import book_paid

REMINDERS = 3
BETWEEN = "14d"
PAID = "invoice.paid"
"""The signal that a payment sends, with the invoice's id as its key."""


@dataclass(frozen=True, slots=True)
class DunningRequest:
    """Which invoice is not paid."""

    invoice_id: UUID


async def request_dunning(session: AsyncSession, invoice: Invoice) -> Dunning:
    """Have a customer reminded until the invoice is paid; asking again is the same dunning."""
    request = DunningRequest(invoice.id)
    started = await jobs.start(session, dun, request, key=str(invoice.id), scope="any")
    if started.deduplicated:
        return await session.get_one(Dunning, invoice.id)
    dunning = Dunning(invoice_id=invoice.id, chain_id=started.id)
    session.add(dunning)
    await session.flush()
    return dunning


async def record_payment(session: AsyncSession, invoice: Invoice) -> None:
    """Note that an invoice is paid and signal the function that waits for that, in one commit."""
    if invoice.status is InvoiceStatus.PAID:
        return
    invoice.status = InvoiceStatus.PAID
    await session.refresh(invoice, ["lines"])
    gross = add_up(invoice.lines).gross
    await book_paid(session, invoice.tenant_id, invoice.issued_on, gross)
    await jobs.signal(session, PAID, key=invoice.id)


@jobs.job("invoice.dunning.requested", retry=OUTBOX)
async def dun(job: Job[DunningRequest]) -> DunningStatus:
    """Remind, wait two weeks or until the payment comes, and remind again."""
    id = job.input.invoice_id
    for level in range(1, REMINDERS + 1):
        if await job.step("remind", remind, id, level, key=level):
            try:
                await job.wait_for(PAID, key=id, timeout=BETWEEN)
            except SignalTimeout:
                continue
        return await job.step("end", end, id, DunningStatus.PAID)
    return await job.step("end", end, id, DunningStatus.HANDED_OVER)


async def remind(invoice_id: UUID, level: int) -> bool:
    """Send a reminder; False if the invoice is paid. Twice is as good as once: an e-mail is requested by its key."""
    async with Session.begin() as session:
        invoice = await session.get_one(Invoice, invoice_id, options=WITH_EVERYTHING)
        if invoice.status is InvoiceStatus.PAID:
            return False
        dunning = await session.get_one(Dunning, invoice_id)
        dunning.level, dunning.reminded_at = level, datetime.now(UTC)
        await request_email(session, invoice, purpose=f"dunning-{level}")
    return True


async def end(invoice_id: UUID, status: DunningStatus) -> DunningStatus:
    """Note how it ended. A collection agency would take over here."""
    async with Session.begin() as session:
        (await session.get_one(Dunning, invoice_id)).status = status
    return status
