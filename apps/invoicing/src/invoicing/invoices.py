"""Issuing invoices, and what they add up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import joinedload, selectinload

from invoicing.models import Customer, Document, Invoice, InvoiceLine, Tenant
from invoicing.revenue import book_issued

PAYMENT_DAYS = 14


@dataclass(frozen=True, slots=True)
class Totals:
    """What an invoice adds up to, in cents; `taxes` is the tax of each rate."""

    net: int
    taxes: dict[int, int]

    @property
    def tax(self) -> int:
        """All tax."""
        return sum(self.taxes.values())

    @property
    def gross(self) -> int:
        """What has to be paid."""
        return self.net + self.tax


def add_up(lines: Sequence[InvoiceLine]) -> Totals:
    """Add up lines. Tax is rounded once per rate, half a cent up, as tax offices do."""
    nets: dict[int, int] = {}
    for line in lines:
        nets[line.tax_rate] = nets.get(line.tax_rate, 0) + line.net
    taxes = {rate: (net * rate + 5_000) // 10_000 for rate, net in sorted(nets.items())}
    return Totals(sum(nets.values()), taxes)


async def issue_invoice(
    session: AsyncSession,
    tenant: Tenant,
    customer: Customer,
    lines: Sequence[InvoiceLine],
    issued_on: date,
    due_on: date | None = None,
) -> Invoice:
    """Write an invoice under the tenant's next number, with the document that will be its PDF."""
    number = await session.scalar(
        update(Tenant)
        .where(Tenant.id == tenant.id)
        .values(invoices_numbered=Tenant.invoices_numbered + 1)
        .returning(Tenant.invoices_numbered)
    )
    for position, line in enumerate(lines, start=1):
        line.position = position
    invoice = Invoice(
        tenant=tenant,
        customer=customer,
        number=f"{issued_on.year}-{number:05}",
        issued_on=issued_on,
        due_on=due_on or issued_on + timedelta(days=PAYMENT_DAYS),
        lines=list(lines),
        document=Document(tenant_id=tenant.id),
        deliveries=[],
    )
    session.add(invoice)
    await session.flush()
    await book_issued(session, tenant.id, issued_on, add_up(lines).gross)
    return invoice


WITH_EVERYTHING = (
    joinedload(Invoice.tenant),
    joinedload(Invoice.customer),
    joinedload(Invoice.document).joinedload(Document.file),
    selectinload(Invoice.lines),
    selectinload(Invoice.deliveries),
)


async def find_invoice(session: AsyncSession, id: UUID, tenant: Tenant) -> Invoice | None:
    """Return one of a tenant's invoices; another tenant's does not exist for it."""
    wanted = select(Invoice).where(Invoice.id == id, Invoice.tenant_id == tenant.id)
    return (await session.scalars(wanted.options(*WITH_EVERYTHING))).one_or_none()
