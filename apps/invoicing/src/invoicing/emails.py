"""`invoice.email.requested`: an invoice or a reminder on its way to the customer, with the PDF attached."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from uuid import UUID, uuid4

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import joinedload

from holdfast import Job, Permanent
from invoicing.database import Session
from invoicing.invoices import add_up
from invoicing.jobs import OUTBOX, first_line, jobs
from invoicing.mail import send_message
from invoicing.models import DeliveryStatus, Document, DocumentStatus, EmailDelivery, Invoice
from invoicing.pdf import file_store, format_money, request_pdf
from invoicing.settings import read_settings


@dataclass(frozen=True, slots=True)
class EmailRequest:
    """Which delivery to make."""

    delivery_id: UUID


async def request_email(
    session: AsyncSession, invoice: Invoice, purpose: str = "invoice"
) -> EmailDelivery:
    """Have an invoice mailed, once per purpose; the job waits for the PDF without taking a slot."""
    key = f"{invoice.id}:{purpose}"
    document = invoice.document
    await request_pdf(session, document)
    delivery = EmailDelivery(
        id=uuid4(),
        tenant_id=invoice.tenant_id,
        invoice_id=invoice.id,
        idempotency_key=key,
        purpose=purpose,
        recipient=invoice.customer.email,
    )
    request = EmailRequest(delivery.id)
    is_ready = document.status is DocumentStatus.READY
    sending = await jobs.start(
        session,
        send_email,
        request,
        key=key,
        scope="any",
        blockers=[] if is_ready or document.chain_id is None else [document.chain_id],
    )
    if sending.deduplicated:
        known = select(EmailDelivery).where(EmailDelivery.idempotency_key == key)
        return (await session.scalars(known)).one()
    delivery.chain_id = sending.id
    session.add(delivery)
    await session.flush()
    return delivery


async def note_failure(job: Job[EmailRequest]) -> None:
    """Show a delivery as FAILED, in one commit with the failure, when its job fails for good."""
    async with Session.begin() as session:
        delivery = await session.get(EmailDelivery, job.input.delivery_id)
        if delivery is not None and delivery.status is DeliveryStatus.PENDING:
            delivery.status, delivery.error = DeliveryStatus.FAILED, first_line(job.error)
        await job.complete(tx=session)


@jobs.job("invoice.email.requested", retry=OUTBOX, on_failed=note_failure)
async def send_email(job: Job[EmailRequest]) -> None:
    """Send, then record it with the job's completion.

    Only a crash between the two sends again, and then with the same Message-ID.
    """
    async with Session() as session:
        delivery = await session.get(EmailDelivery, job.input.delivery_id, options=_WITH_INVOICE)
    if delivery is None:
        raise Permanent(f"there is no delivery {job.input.delivery_id}")
    if delivery.status is DeliveryStatus.SENT:
        return
    settings = read_settings()
    message = await write_message(delivery, settings.mail_from)
    await send_message(settings.mail_url, message)
    async with Session.begin() as session:
        delivery = await session.get_one(EmailDelivery, delivery.id)
        delivery.status, delivery.error = DeliveryStatus.SENT, None
        delivery.sent_at = datetime.now(UTC)
        await job.complete(tx=session)


async def write_message(delivery: EmailDelivery, sender: str) -> EmailMessage:
    """Write the e-mail. Every attempt writes the same one, so that a mail server can recognise it."""
    invoice = delivery.invoice
    tenant, document = invoice.tenant, invoice.document
    if document.file is None:
        raise Permanent(f"invoice {invoice.number} has no PDF")
    amount = format_money(add_up(invoice.lines).gross, tenant)
    is_reminder = delivery.purpose != "invoice"
    message = EmailMessage()
    message["From"] = f"{tenant.name} <{sender}>"
    message["To"] = delivery.recipient
    message["Subject"] = (
        f"{'Reminder: invoice' if is_reminder else 'Invoice'} {invoice.number} from {tenant.name}"
    )
    message["Date"] = format_datetime(delivery.created_at)
    message["Message-ID"] = f"<{delivery.id}@{sender.rpartition('@')[2]}>"
    opening = (
        f"Our invoice {invoice.number} of {amount} was due on {invoice.due_on:%-d %B %Y}, and we "
        "have not seen your payment yet. If it is on its way, please ignore this message."
        if is_reminder
        else f"Please find attached invoice {invoice.number} of {amount}, due on "
        f"{invoice.due_on:%-d %B %Y}."
    )
    message.set_content(
        f"Dear {invoice.customer.name},\n\n{opening}\n\n"
        f"IBAN {tenant.iban}, reference {invoice.number}\n\nKind regards\n{tenant.name}\n"
    )
    message.add_attachment(
        await file_store().aio.get(document.file.key, sha256=document.file.sha256),
        maintype="application",
        subtype="pdf",
        filename=f"{invoice.number}.pdf",
    )
    message.set_boundary(f"part-{delivery.id}")
    return message


_INVOICE = joinedload(EmailDelivery.invoice)
_WITH_INVOICE = (
    _INVOICE.joinedload(Invoice.tenant),
    _INVOICE.joinedload(Invoice.customer),
    _INVOICE.joinedload(Invoice.document).joinedload(Document.file),
    _INVOICE.selectinload(Invoice.lines),
)
