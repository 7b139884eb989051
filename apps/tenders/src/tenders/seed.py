"""Data for a first look: devices with their preferences, and a history that cleanup and archive find work in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from tenders.generated import generate_device, generate_tender
from tenders.ingest import store_tender
from tenders.models import Delivery, DeliveryStatus, Installation, NotificationEvent, Tender
from tenders.partitions import create_months

AGES_DAYS = (430, 400, 200, 130, 100, 60, 20)
"""How long ago the tenders of the history were published: two beyond a year, three more beyond a quarter."""

RECEIPT_AFTER = timedelta(minutes=20)


async def seed(session: AsyncSession, now: datetime, devices: int, tenders: int) -> int:
    """Write devices and tenders that are not there yet; return how many devices are new."""
    known = set(await session.scalars(select(Installation.id)))
    new = [
        each for each in map(generate_device, range(devices)) if each.installation.id not in known
    ]
    session.add_all([each.installation for each in new])
    await session.flush()
    session.add_all([each.preference for each in new])
    await session.flush()
    await _write_history(session, now, tenders)
    return len(new)


async def _write_history(session: AsyncSession, now: datetime, tenders: int) -> None:
    """Write tenders of the past whose notifications went out long ago."""
    moments = list(_moments(now, tenders))
    await create_months(session, moments)
    for number, published_at in enumerate(moments):
        # Numbers of their own, far from those that the local sources use.
        tender = replace(generate_tender(900_000 + number, published_at), sources=("api",))
        if await store_tender(session, tender, now) is not None:
            await _deliver(session, tender.code, published_at + RECEIPT_AFTER)


def _moments(now: datetime, tenders: int) -> Iterator[datetime]:
    for number in range(tenders):
        days = AGES_DAYS[number % len(AGES_DAYS)] + number // len(AGES_DAYS)
        yield (now - timedelta(days=days)).replace(hour=14, minute=0, second=0, microsecond=0)


async def _deliver(session: AsyncSession, code: str, at: datetime) -> None:
    """Have all that was to be sent about a tender be sent and confirmed."""
    tender = select(Tender.id).where(Tender.code == code)
    mine = select(NotificationEvent.id).where(NotificationEvent.tender_id.in_(tender))
    await session.execute(
        update(Tender).where(Tender.code == code).values(is_notified=True, notified_at=at)
    )
    await session.execute(
        update(Delivery)
        .where(Delivery.event_id.in_(mine))
        .values(
            status=DeliveryStatus.OK,
            attempt_count=1,
            sent_at=at,
            completed_at=at,
            created_at=at,
            updated_at=at,
        )
    )
