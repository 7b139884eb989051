"""What tests of dispatch and receipts share: a clock, tenders with their deliveries, and runs of the two cycles."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from apps.tenders.local.push_server import PushServer
from sqlalchemy import select

from holdfast.core.cycle import Slot
from holdfast.scheduler.cycle_run import WHOLE, CycleRun
from holdfast.testing.kit import Kit
from holdfast_leases import to_instant
from tenders.database import Session
from tenders.deliveries import Work
from tenders.dispatch import send_due
from tenders.expo import ExpoPush
from tenders.jobs import jobs
from tenders.models import Delivery, Installation, NotificationEvent, Preference, Tender
from tenders.partitions import create_months
from tenders.push import PushProvider
from tenders.receipts import fetch_due
from tenders.settings import Settings, read_settings

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@dataclass
class HandClock:
    """A time that only the test moves."""

    now: datetime = NOON

    def __call__(self) -> int:
        return to_instant(self.now)

    def advance(self, span: timedelta) -> None:
        """Let time pass."""
        self.now += span


@dataclass
class Pushing:
    """The push half of the application, run by hand against a push service."""

    url: str
    clock: HandClock = field(default_factory=HandClock)
    settings: Settings = field(default_factory=read_settings)

    async def dispatch(
        self,
        worker: str = "w-1",
        max_items: int | None = None,
        provider: PushProvider | None = None,
    ) -> dict[str, float]:
        """Run `dispatch` once; return its counters."""
        run = make_run("dispatch", worker, max_items)
        expo = ExpoPush(self.url, timeout_s=5)
        try:
            await send_due(Work(run, self.settings, self.clock), provider or expo)
        finally:
            await expo.aclose()
        return dict(run.numbers)

    async def receipt(self, worker: str = "w-1", max_items: int | None = None) -> dict[str, float]:
        """Run `receipt` once; return its counters."""
        run = make_run("receipt", worker, max_items)
        expo = ExpoPush(self.url, timeout_s=5)
        try:
            await fetch_due(Work(run, self.settings, self.clock), expo)
        finally:
            await expo.aclose()
        return dict(run.numbers)

    def work(self, cycle: str, worker: str = "w-1") -> Work:
        """Return a run to be used by hand."""
        return Work(make_run(cycle, worker), self.settings, self.clock)

    def set(self, **changes: timedelta) -> None:
        """Change settings."""
        self.settings = replace(self.settings, **changes)  # type: ignore[arg-type]


@pytest.fixture
def pushing(kit: Kit, server: PushServer) -> Pushing:
    """The cycles, addressed to the service."""
    return Pushing(server.start())


def make_run(cycle: str, worker: str, max_items: int | None = None) -> CycleRun:
    """Return a run of a cycle, as a worker would make it."""
    slot = Slot("2026-11-16T12:00:00Z", to_instant(NOON))
    return CycleRun(cycle, slot, str(uuid4()), worker, WHOLE, jobs.database, None, max_items)


async def add_tender(code: str = "1057-7-LE26", region: str = "13") -> Tender:
    """Add a tender with its event."""
    async with Session.begin() as session:
        await create_months(session, [NOON])
        tender = Tender(
            code=code,
            title=f"Mantención de caminos {code}",
            buyer="Municipalidad de Ñuñoa",
            region=region,
            category="72103300",
            kind="LE",
            amount=45_000_000,
            published_at=NOON,
            sources="api",
        )
        session.add(tender)
        await session.flush()
        session.add(
            NotificationEvent(kind="new_tender", tender_id=tender.id, tender_published_at=NOON)
        )
    return tender


async def add_deliveries(tender: Tender, count: int = 1, due: datetime = NOON) -> list[str]:
    """Add as many installations that want everything, with a delivery for each; return their tokens."""
    tokens = [f"ExponentPushToken[{uuid4().hex[:22]}]" for _ in range(count)]
    async with Session.begin() as session:
        event = (
            await session.scalars(
                select(NotificationEvent).where(NotificationEvent.tender_id == tender.id)
            )
        ).one()
        installations = [Installation(push_token=each, platform="android") for each in tokens]
        session.add_all(installations)
        await session.flush()
        session.add_all(Preference(installation_id=each.id) for each in installations)
        for each in installations:
            session.add(Delivery(event_id=event.id, installation_id=each.id, next_attempt_at=due))
            await session.flush()  # ids in the order of the tokens
    return tokens


async def deliveries() -> list[Delivery]:
    """Return all deliveries, oldest first."""
    async with Session() as session:
        return list(await session.scalars(select(Delivery).order_by(Delivery.id)))


async def delivery() -> Delivery:
    """Return the only delivery."""
    (found,) = await deliveries()
    return found


async def installation(token: str) -> Installation:
    """Return the installation with a token."""
    async with Session() as session:
        return (
            await session.scalars(select(Installation).where(Installation.push_token == token))
        ).one()


async def is_notified(tender: Tender) -> bool:
    """Return whether a tender is marked."""
    async with Session() as session:
        query = select(Tender.is_notified).where(Tender.id == tender.id)
        return bool((await session.scalars(query)).one())
