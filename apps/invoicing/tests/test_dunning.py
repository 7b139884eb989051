"""Dunning: weeks in a moment, with the kit's clock; the payment ends it, in the transaction that records it."""

from __future__ import annotations

from uuid import UUID

import pytest
from apps.invoicing.tests.conftest import TODAY, Login, an_invoice
from sqlalchemy import delete, select

from holdfast import Shard
from holdfast_testing.kit import Kit
from invoicing.database import Session
from invoicing.dunning import DunningRequest, dun, record_payment, request_dunning
from invoicing.models import Dunning, DunningStatus, EmailDelivery, Invoice, InvoiceStatus, Reminder
from invoicing.reminders import send_reminders
from invoicing.worker import jobs


@pytest.fixture
async def invoice(seeded: Kit) -> Invoice:
    """An invoice that nobody has paid."""
    found = await an_invoice()
    async with Session.begin() as session:
        (await session.get_one(Invoice, found.id)).status = InvoiceStatus.OPEN
    return found


async def start(id: UUID) -> None:
    """Have the customer of an invoice dunned."""
    async with Session.begin() as session:
        await request_dunning(session, await session.get_one(Invoice, id))


async def dunning_of(id: UUID) -> Dunning:
    """Return how far it is."""
    async with Session() as session:
        return await session.get_one(Dunning, id)


async def reminders_of(id: UUID) -> list[str]:
    """Return what was mailed because of it."""
    mine = select(EmailDelivery.purpose).where(
        EmailDelivery.invoice_id == id, EmailDelivery.purpose.startswith("dunning")
    )
    async with Session() as session:
        return sorted(await session.scalars(mine))


async def test_a_customer_who_never_pays_is_handed_over_after_three_reminders(
    seeded: Kit, invoice: Invoice
) -> None:
    await start(invoice.id)
    for level in (1, 2, 3):
        await seeded.run_until_idle_async()
        assert (await dunning_of(invoice.id)).level == level
        seeded.advance("13d")
        await seeded.run_until_idle_async()
        assert (await dunning_of(invoice.id)).level == level
        seeded.advance("1d")
    await seeded.run_until_idle_async()
    assert (await dunning_of(invoice.id)).status is DunningStatus.HANDED_OVER
    assert await reminders_of(invoice.id) == ["dunning-1", "dunning-2", "dunning-3"]


async def test_a_payment_ends_the_dunning(seeded: Kit, invoice: Invoice, login: Login) -> None:
    client = login(0)
    answer = await client.post(f"/invoices/{invoice.id}/dunning")
    assert (answer.status_code, answer.json()["status"]) == (202, "RUNNING")
    again = await client.post(f"/invoices/{invoice.id}/dunning")
    assert again.json() == answer.json()
    await seeded.run_until_idle_async()
    seeded.advance("15d")
    await seeded.run_until_idle_async()
    paid = await client.post(f"/invoices/{invoice.id}/payment")
    assert paid.json()["status"] == "PAID"
    assert (await client.post(f"/invoices/{invoice.id}/payment")).status_code == 200
    await seeded.run_until_idle_async()
    assert (await dunning_of(invoice.id)).status is DunningStatus.PAID
    assert await reminders_of(invoice.id) == ["dunning-1", "dunning-2"]
    assert jobs.chains.get(answer.json()["chainId"]).output == "PAID"


async def test_a_payment_that_is_rolled_back_ends_nothing(seeded: Kit, invoice: Invoice) -> None:
    await start(invoice.id)
    await seeded.run_until_idle_async()
    async with Session() as session:
        await record_payment(session, await session.get_one(Invoice, invoice.id))
        await session.rollback()
    await seeded.run_until_idle_async()
    assert (await dunning_of(invoice.id)).status is DunningStatus.RUNNING


async def test_an_invoice_that_was_paid_before_is_not_reminded(
    seeded: Kit, invoice: Invoice
) -> None:
    async with Session.begin() as session:
        await record_payment(session, await session.get_one(Invoice, invoice.id))
    await start(invoice.id)
    await seeded.run_until_idle_async()
    assert (await dunning_of(invoice.id)).status is DunningStatus.PAID
    assert await reminders_of(invoice.id) == []


async def test_the_cycle_leaves_invoices_alone_that_are_dunned(
    seeded: Kit, invoice: Invoice
) -> None:
    await start(invoice.id)
    async with Session.begin() as session:
        assert await send_reminders(session, TODAY, 1_000, Shard(0, 1)) > 0
        assert await session.get(Reminder, invoice.id) is None


async def test_dunning_ends_the_same_wherever_a_worker_dies(seeded: Kit, invoice: Invoice) -> None:
    async def reset() -> None:
        async with Session.begin() as session:
            await session.execute(delete(EmailDelivery))
            await session.execute(delete(Dunning))
            session.add(Dunning(invoice_id=invoice.id, chain_id=invoice.id))

    async def rows() -> object:
        ended = await dunning_of(invoice.id)
        return ended.status, ended.level, await reminders_of(invoice.id)

    request = DunningRequest(invoice.id)
    assert await seeded.crash_everywhere_async(dun, request, rows=rows, reset=reset) >= 12
