"""What tests of pushes and receipts share: a clock, tenders with their deliveries, and what sends and asks."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from apps.tenders.local.push_server import PushServer
from apps.tenders.tests.conftest import using
from sqlalchemy import select

from holdfast import Holdfast
from holdfast.core.cycle import Slot
from holdfast.scheduler.cycle_run import WHOLE, CycleRun
from holdfast_leases import to_instant
from holdfast_testing.kit import Kit
from holdfast_testing.test_clock import MovedClock
from tenders.database import Session
from tenders.expo import ExpoPush
from tenders.jobs import jobs
from tenders.models import Delivery, Installation, NotificationEvent, Preference, Tender
from tenders.partitions import create_months
from tenders.push import PushMessage, SendOutcome
from tenders.receipts import fetch_due
from tenders.sending import outage
from tenders.settings import read_settings

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


class StillClock(MovedClock):
    """What the kit asks for the time: a clock of the test's own."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__()
        self._clock = clock

    def now(self) -> int:
        """The test's time."""
        return self._clock()

    def instant(self) -> int:
        """The test's time, always."""
        return self._clock()


class HandKit(Kit):
    """A kit whose time is that of a clock."""

    def __init__(self, app: Holdfast, url: str, clock: HandClock) -> None:
        self.clock = clock
        super().__init__(app, url, clock=StillClock(clock))


@dataclass
class Pushing:
    """The push half of the application, run by hand against a push service."""

    url: str
    kit: HandKit
    set: Callable[[str, str], None]
    """Sets a variable."""

    @property
    def clock(self) -> HandClock:
        """The time of everything."""
        return self.kit.clock

    async def dispatch(self) -> dict[str, int]:
        """Run `dispatch` once and then what is due; return what changed in the tables."""
        before = await Tables.read()
        await self.kit.run_cycle_async("dispatch")
        await self.kit.run_until_idle_async()
        return (await Tables.read()).changes_since(before)

    async def receipt(self, worker: str = "w-1", max_items: int | None = None) -> dict[str, float]:
        """Run `receipt` once; return its counters."""
        run = make_run("receipt", worker, max_items)
        expo = ExpoPush(self.url, timeout_s=5)
        try:
            await fetch_due(run, read_settings(), expo)
        finally:
            await expo.aclose()
        return dict(run.numbers)


@dataclass(frozen=True, slots=True)
class Tables:
    """What there is to see of pushes: deliveries with their attempts, tenders and devices."""

    deliveries: dict[int, tuple[str, int]]
    notified: frozenset[UUID]
    off: frozenset[UUID]

    @classmethod
    async def read(cls) -> "Tables":
        """Read them."""
        async with Session() as session:
            rows = await session.execute(
                select(Delivery.id, Delivery.status, Delivery.attempt_count)
            )
            notified = await session.scalars(select(Tender.id).where(Tender.is_notified))
            off = await session.scalars(select(Installation.id).where(~Installation.is_active))
            found = {id: (status.value, attempts) for id, status, attempts in rows}
            return cls(found, frozenset(notified), frozenset(off))

    def changes_since(self, before: "Tables") -> dict[str, int]:
        """Count the deliveries that were tried, by what became of them, and what followed from that."""
        changed = Counter(
            status
            for id, (status, attempts) in self.deliveries.items()
            if before.deliveries[id] != (status, attempts)
        )
        changed["tenders_notified"] = len(self.notified - before.notified)
        changed["switched_off"] = len(self.off - before.off)
        return dict(+changed)


@contextmanager
def after_send(hook: Callable[[], Awaitable[object]]) -> Iterator[None]:
    """Call back after the service has answered and before that is recorded, in the block."""
    send = ExpoPush.send

    async def hooked(self: ExpoPush, messages: Sequence[PushMessage]) -> list[SendOutcome]:
        outcomes = await send(self, messages)
        await hook()
        return outcomes

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExpoPush, "send", hooked)
        yield


@pytest.fixture
async def pushing(
    url: str, server: PushServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Pushing]:
    """The application with a clock, addressed to the service."""
    address = server.start()
    monkeypatch.setenv("EXPO_URL", address)
    monkeypatch.setenv("EXPO_TIMEOUT", "5s")
    monkeypatch.setattr(outage, "until", None)
    async with using(HandKit(jobs, url, HandClock()), url) as kit:
        yield Pushing(address, kit, monkeypatch.setenv)


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
