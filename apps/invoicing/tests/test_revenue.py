"""`revenue`: each invoice and each payment counts once, in the month of the invoice."""

from __future__ import annotations

from apps.invoicing.tests.conftest import Login, an_invoice

from holdfast_testing.kit import Kit
from invoicing.database import Session
from invoicing.dunning import record_payment
from invoicing.invoices import add_up
from invoicing.models import Invoice, InvoiceStatus


async def test_what_was_issued_and_paid_is_added_up_by_month(seeded: Kit, login: Login) -> None:
    client = login(0)
    before = {each["month"]: each for each in (await client.get("/revenue")).json()}
    assert sum(each["issued"] for each in before.values()) > 0
    found = await an_invoice()
    async with Session.begin() as session:
        (await session.get_one(Invoice, found.id)).status = InvoiceStatus.OPEN
    for _ in range(2):
        async with Session.begin() as session:
            invoice = await session.get_one(Invoice, found.id)
            await record_payment(session, invoice)
            await session.refresh(invoice, ["lines"])
            gross = add_up(invoice.lines).gross
    await seeded.run_until_idle_async()
    after = {each["month"]: each for each in (await client.get("/revenue")).json()}
    month = f"{found.issued_on:%Y-%m}"
    assert after[month]["paid"] == before[month]["paid"] + gross
    assert after[month]["issued"] == before[month]["issued"]
