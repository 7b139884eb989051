"""`invoice.email.requested`: one e-mail per purpose, its PDF attached, against a real SMTP server."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from uuid import UUID

import pytest
from aiosmtpd.smtp import SMTP, Envelope
from aiosmtpd.smtp import Session as SmtpSession
from apps.invoicing.tests.conftest import Login, an_invoice
from apps.invoicing.tests.test_pdf import RENDER, break_logo

from holdfast_testing.kit import Kit
from invoicing import emails
from invoicing.database import Session
from invoicing.emails import EmailRequest, request_email
from invoicing.invoices import WITH_EVERYTHING
from invoicing.mail import send_message
from invoicing.models import DeliveryStatus, EmailDelivery, Invoice
from invoicing.worker import jobs

SEND = "invoice.email.requested"


@dataclass
class Mailbox:
    """What a mail server took, and how it answers the next messages."""

    messages: list[EmailMessage] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    async def handle_DATA(self, server: SMTP, session: SmtpSession, envelope: Envelope) -> str:  # noqa: N802
        """Take a message, unless another answer was prepared."""
        answer = self.answers.pop(0) if self.answers else "250 OK"
        if answer.startswith("250"):
            assert isinstance(envelope.content, bytes)
            self.messages.append(message_from_bytes(envelope.content, policy=policy.default))
        return answer


@pytest.fixture
async def mailbox(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Mailbox]:
    """A mail server on a free port, which the application uses."""
    box = Mailbox()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(box, loop=loop), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("INVOICING_MAIL", f"smtp://127.0.0.1:{port}")
    yield box
    server.close()
    await server.wait_closed()


async def ask(id: UUID, purpose: str = "invoice") -> UUID:
    """Request an e-mail; return the delivery's id."""
    async with Session.begin() as session:
        invoice = await session.get_one(Invoice, id, options=WITH_EVERYTHING)
        return (await request_email(session, invoice, purpose)).id


async def delivery(id: UUID) -> EmailDelivery:
    """Return a delivery as it is in its table."""
    async with Session() as session:
        return await session.get_one(EmailDelivery, id)


async def test_an_invoice_is_mailed_with_its_pdf(seeded: Kit, mailbox: Mailbox) -> None:
    invoice = await an_invoice()
    id = await ask(invoice.id)
    assert (await delivery(id)).status is DeliveryStatus.PENDING
    await seeded.run_until_idle_async()
    (message,) = mailbox.messages
    assert message["Message-ID"] == f"<{id}@invoicing.example>"
    assert invoice.number in message["Subject"]
    (attached,) = message.iter_attachments()
    assert attached.get_filename() == f"{invoice.number}.pdf"
    assert bytes(attached.get_payload(decode=True)).startswith(b"%PDF-")
    done = await delivery(id)
    assert done.status is DeliveryStatus.SENT
    assert done.sent_at is not None


async def test_without_a_mail_server_messages_are_files(seeded: Kit, place: Path) -> None:
    id = await ask((await an_invoice()).id)
    await seeded.run_until_idle_async()
    (file,) = (place / "mail").iterdir()
    assert file.name == f"{id}.eml"
    assert message_from_bytes(file.read_bytes(), policy=policy.default)["To"]


async def test_asking_again_is_the_same_delivery(
    seeded: Kit, login: Login, mailbox: Mailbox
) -> None:
    client, invoice = login(0), await an_invoice()
    answers = [await client.post(f"/invoices/{invoice.id}/send") for _ in range(3)]
    assert [each.status_code for each in answers] == [202, 202, 202]
    assert len({each.json()["id"] for each in answers}) == 1
    await seeded.run_until_idle_async()
    again = await client.post(f"/invoices/{invoice.id}/send")
    assert again.json()["status"] == "SENT"
    await seeded.run_until_idle_async()
    assert len(mailbox.messages) == 1
    shown = (await client.get(f"/invoices/{invoice.id}")).json()
    assert [each["status"] for each in shown["deliveries"]] == ["SENT"]
    assert shown["document"]["status"] == "READY"


async def test_an_invoice_and_its_reminders_are_different_e_mails(
    seeded: Kit, mailbox: Mailbox
) -> None:
    invoice = await an_invoice()
    for purpose in ("invoice", "reminder-1", "reminder-1"):
        await ask(invoice.id, purpose)
    await seeded.run_until_idle_async()
    subjects = sorted(str(each["Subject"]).split()[0] for each in mailbox.messages)
    assert subjects == ["Invoice", "Reminder:"]


async def test_the_e_mail_waits_for_the_pdf_without_being_run(
    seeded: Kit, mailbox: Mailbox
) -> None:
    invoice = await an_invoice()
    await ask(invoice.id)
    (job,) = seeded.started(SEND)
    assert job.state == "blocked"
    logo = await break_logo(invoice)
    await seeded.run_until_idle_async()
    (job,) = seeded.started(SEND)
    assert (job.state, job.attempt) == ("blocked", 0)
    await break_logo(invoice, logo)
    seeded.advance("3m")
    await seeded.run_until_idle_async()
    assert len(mailbox.messages) == 1


async def test_a_delivery_that_was_sent_is_not_sent_again(seeded: Kit, mailbox: Mailbox) -> None:
    id = await ask((await an_invoice()).id)
    await seeded.run_until_idle_async()
    async with Session.begin() as session:
        again = await jobs.start(session, emails.send_email, EmailRequest(id))
    await seeded.run_until_idle_async()
    assert (await jobs.aio.chains.get(again.id)).state == "completed"
    assert len(mailbox.messages) == 1


async def test_a_worker_that_dies_before_recording_sends_the_same_message_again(
    seeded: Kit, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send_and_die(url: str, message: EmailMessage) -> None:
        await send_message(url, message)
        raise ConnectionError("the worker is gone")

    id = await ask((await an_invoice()).id)
    with monkeypatch.context() as patch:
        patch.setattr(emails, "send_message", send_and_die)
        await seeded.run_until_idle_async()
    assert (await delivery(id)).status is DeliveryStatus.PENDING
    seeded.advance("3m")
    await seeded.run_until_idle_async()
    first, second = mailbox.messages
    assert first["Message-ID"] == second["Message-ID"]
    assert bytes(first) == bytes(second)
    assert (await delivery(id)).status is DeliveryStatus.SENT


async def test_a_busy_mail_server_is_tried_again(seeded: Kit, mailbox: Mailbox) -> None:
    mailbox.answers = ["451 try later", "451 try later"]
    id = await ask((await an_invoice()).id)
    for _ in range(2):
        await seeded.run_until_idle_async()
        assert (await delivery(id)).status is DeliveryStatus.PENDING
        seeded.advance("3m")
    await seeded.run_until_idle_async()
    assert (await delivery(id)).status is DeliveryStatus.SENT


async def test_a_refused_message_fails_at_once(seeded: Kit, mailbox: Mailbox) -> None:
    mailbox.answers = ["554 we do not want this"]
    id = await ask((await an_invoice()).id)
    await seeded.run_until_idle_async()
    failed = await delivery(id)
    assert failed.status is DeliveryStatus.FAILED
    assert "we do not want this" in (failed.error or "")


async def test_an_e_mail_whose_pdf_failed_is_failed_too(seeded: Kit, mailbox: Mailbox) -> None:
    invoice = await an_invoice()
    await break_logo(invoice)
    id = await ask(invoice.id)
    for _ in range(3):
        await seeded.run_until_idle_async()
        seeded.advance("3m")
    failed = await delivery(id)
    assert failed.status is DeliveryStatus.FAILED
    assert mailbox.messages == []
    assert len(seeded.started(RENDER)) == 1
