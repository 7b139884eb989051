"""What each tenant issued and was paid, month by month: a consumer adds up the events of invoices.

With `INVOICING_RELAY`, other services get the same events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast_streams import JetStream, StreamEvent, add_streams
from invoicing.database import Session, insert_into
from invoicing.jobs import jobs
from invoicing.models import Revenue, Tenant
from invoicing.settings import read_settings

streams = add_streams(jobs)
EVENTS = ("invoice.issued", "invoice.paid")

if (server := read_settings().relay_url) is not None:
    streams.relay(*EVENTS, to=JetStream(server, stream="INVOICES"), since="earliest")


@dataclass(frozen=True, slots=True)
class Booking:
    """What an event adds to a tenant's month, in cents."""

    tenant_id: UUID
    month: str
    issued: int = 0
    paid: int = 0


async def book_issued(session: AsyncSession, tenant_id: UUID, issued_on: date, gross: int) -> None:
    """Say that an invoice was issued."""
    booking = Booking(tenant_id, f"{issued_on:%Y-%m}", issued=gross)
    await jobs.publish(session, "invoice.issued", booking, key=str(tenant_id))


async def book_paid(session: AsyncSession, tenant_id: UUID, issued_on: date, gross: int) -> None:
    """Say that an invoice was paid; it counts for the month in which it was issued."""
    booking = Booking(tenant_id, f"{issued_on:%Y-%m}", paid=gross)
    await jobs.publish(session, "invoice.paid", booking, key=str(tenant_id))


@streams.consumer(*EVENTS, since="earliest", begin=Session.begin)
async def add_revenue(events: list[StreamEvent[Booking]], session: AsyncSession) -> None:
    """Add to the months; the sums and how far the log was read are one commit, so each event counts once."""
    for event in events:
        booked = event.data
        added = insert_into(session, Revenue).values(
            tenant_id=booked.tenant_id, month=booked.month, issued=booked.issued, paid=booked.paid
        )
        await session.execute(
            added.on_conflict_do_update(
                index_elements=["tenant_id", "month"],
                set_={"issued": Revenue.issued + booked.issued, "paid": Revenue.paid + booked.paid},
            )
        )


async def list_revenue(session: AsyncSession, tenant: Tenant) -> Sequence[Revenue]:
    """Return a tenant's months, the latest first."""
    mine = select(Revenue).where(Revenue.tenant_id == tenant.id).order_by(Revenue.month.desc())
    return (await session.scalars(mine)).all()
