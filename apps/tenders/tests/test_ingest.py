"""From the sources into the tables: what is new, once, with everyone who wants to hear of it."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from apps.tenders.local.source_server import SourceFaults, SourceServer
from sqlalchemy import func, select

from holdfast_testing.kit import Kit
from tenders.database import Session
from tenders.generated import generate_device, generate_tender
from tenders.ingest import AllSourcesFailed, Ingest, store_tender
from tenders.models import Base, Delivery, DeliveryStatus, NotificationEvent, RegisteredCode, Tender
from tenders.partitions import create_months
from tenders.sending import start_pushes
from tenders.settings import read_settings
from tenders.sources.opening import open_sources

NOW = datetime(2026, 11, 16, 15, tzinfo=UTC)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SourceServer]:
    """Sources with 12 tenders: the API has all but two, the pages all but two others."""
    server = SourceServer()
    tenders = [generate_tender(number, NOW - timedelta(minutes=number)) for number in range(12)]
    server.api, server.pages = tenders[2:], tenders[:-2]
    monkeypatch.setenv("TENDERS_SOURCE_TIMEOUT", "2s")
    for name, value in server.variables(server.start()).items():
        monkeypatch.setenv(name, value)
    yield server
    server.close()


@pytest.fixture
async def devices(kit: Kit) -> int:
    """Sixty devices with their preferences."""
    async with Session.begin() as session:
        new = [generate_device(number) for number in range(60)]
        session.add_all([each.installation for each in new])
        await session.flush()
        session.add_all([each.preference for each in new])
    return 60


async def take_in(limit: int = 200, now: datetime = NOW) -> dict[str, int]:
    """Run the cycle's work once; return its counters."""
    async with open_sources(read_settings()) as sources:
        cycle = Ingest(sources, limit)
        await cycle.run(now, lambda: None)
        return dict(cycle.counts)


async def rows(model: type[Base]) -> int:
    """Count a table."""
    async with Session() as session:
        return await session.scalar(select(func.count()).select_from(model)) or 0


async def tenders() -> dict[str, Tender]:
    """Return all tenders by code."""
    async with Session() as session:
        return {each.code: each for each in await session.scalars(select(Tender))}


async def test_what_is_new_comes_in_with_its_event_and_deliveries(
    devices: int, server: SourceServer
) -> None:
    counts = await take_in()
    assert counts == {
        "found": 12,
        "new": 12,
        "merged": 8,
        "deliveries": await rows(Delivery),
        "incomplete": 0,
        "failed_api": 0,
        "failed_pages": 0,
    }
    assert counts["deliveries"] > 12
    assert await rows(RegisteredCode) == await rows(NotificationEvent) == 12
    stored = await tenders()
    for tender in server.api:
        row = stored[tender.code]
        for name in ("title", "description", "region", "category", "kind", "amount", "closes_at"):
            assert getattr(row, name) == getattr(tender, name)
        assert row.published_at == tender.published_at
        assert row.is_notified is False
    async with Session() as session:
        for delivery in await session.scalars(select(Delivery)):
            assert delivery.status is DeliveryStatus.PENDING
            assert delivery.attempt_count == 0
            assert delivery.lock_token is None


async def test_a_push_is_started_with_each_delivery_in_its_transaction(
    kit: Kit, devices: int, server: SourceServer
) -> None:
    await take_in()
    async with Session() as session:
        ids = set(await session.scalars(select(Delivery.id)))
    started = kit.started("push.send")
    assert {each.input for each in started} == ids
    assert {each.key for each in started} == {f"push:{each}" for each in ids}
    # The cycle finds nothing to do.
    assert (await kit.run_cycle_async("dispatch")).counters.get("started", 0) == 0
    await take_in()
    assert len(kit.started("push.send")) == len(ids)


async def test_a_transaction_that_is_rolled_back_starts_no_push(kit: Kit, devices: int) -> None:
    async with Session() as session:
        await create_months(session, [NOW])
        stored = await store_tender(session, generate_tender(1, NOW), NOW)
        await start_pushes(session, stored or [])
        await session.rollback()
    assert stored
    assert kit.started("push.send") == []


async def test_what_is_known_is_neither_asked_for_nor_written_again(
    devices: int, server: SourceServer
) -> None:
    await take_in()
    before = await rows(Delivery)
    server.requests.clear()
    counts = await take_in()
    assert (counts["found"], counts["new"], counts["deliveries"]) == (12, 0, 0)
    assert not [each for each in server.requests if "codigo=" in each]
    assert await rows(Delivery) == before


async def test_one_source_is_enough(devices: int, server: SourceServer) -> None:
    server.api_faults = SourceFaults(status=503)
    counts = await take_in()
    # Both days of the list fail; the two tenders that only the API has come later.
    assert (counts["new"], counts["failed_api"], counts["failed_pages"]) == (10, 2, 0)
    server.api_faults = SourceFaults()
    assert (await take_in())["new"] == 2


async def test_when_every_source_fails_the_run_fails(devices: int, server: SourceServer) -> None:
    server.api_faults = server.page_faults = SourceFaults(status=503)
    with pytest.raises(AllSourcesFailed, match="HTTP 503"):
        await take_in()


async def test_empty_lists_are_no_failure(devices: int, server: SourceServer) -> None:
    server.api, server.pages = [], []
    assert (await take_in())["found"] == 0


async def test_a_tender_whose_details_fail_waits_for_the_next_run(
    devices: int, server: SourceServer
) -> None:
    server.pages = []
    server.detail_faults, server.only_code = SourceFaults(body=b"{}"), server.api[0].code
    counts = await take_in()
    assert (counts["new"], counts["failed_api"]) == (9, 1)
    server.detail_faults = SourceFaults()
    assert (await take_in())["new"] == 1


async def test_a_tender_whose_details_fail_comes_in_when_a_page_describes_it(
    devices: int, server: SourceServer
) -> None:
    server.detail_faults = SourceFaults(status=500)
    counts = await take_in()
    assert (counts["new"], counts["merged"], counts["failed_api"]) == (10, 8, 10)


async def test_half_a_record_is_filled_from_the_other_source(
    devices: int, server: SourceServer
) -> None:
    whole = generate_tender(77, NOW)
    server.api = [replace(whole, region=None, amount=None)]
    server.pages = [replace(whole, title=None, category=None)]
    await take_in()
    row = (await tenders())[whole.code]
    assert (row.title, row.region, row.category) == (whole.title, whole.region, whole.category)
    assert (row.amount, row.sources) == (whole.amount, "api,pages")


async def test_a_record_with_little_more_than_a_title_comes_in(
    devices: int, server: SourceServer
) -> None:
    bare = replace(
        generate_tender(77, NOW), region=None, category=None, amount=None, published_at=None
    )
    server.api, server.pages = [], [bare]
    assert (await take_in())["new"] == 1
    assert (await tenders())[bare.code].published_at == NOW


async def test_a_record_without_a_title_waits_for_one(devices: int, server: SourceServer) -> None:
    whole = generate_tender(77, NOW)
    server.api, server.pages = [], [replace(whole, title=None)]
    counts = await take_in()
    assert (counts["new"], counts["incomplete"]) == (0, 1)
    server.pages = [whole]
    assert (await take_in())["new"] == 1


async def test_duplicates_in_a_list_are_one_tender(devices: int, server: SourceServer) -> None:
    server.api = [*server.api, *server.api]
    server.pages = [*server.pages, *server.pages]
    counts = await take_in()
    assert (counts["found"], counts["new"]) == (12, 12)


@pytest.mark.parametrize("years", [-30, 70])
async def test_a_date_that_cannot_be_true_gets_no_month_of_its_own(
    devices: int, server: SourceServer, years: int
) -> None:
    odd = replace(generate_tender(77, NOW), published_at=NOW.replace(year=NOW.year + years))
    server.api, server.pages = [], [odd]
    await take_in()
    assert (await tenders())[odd.code].published_at == NOW


async def test_what_was_published_late_yesterday_is_not_lost(
    devices: int, server: SourceServer
) -> None:
    just_before_midnight = datetime(2026, 11, 16, 2, 59, tzinfo=UTC)
    server.api, server.pages = [generate_tender(77, just_before_midnight)], []
    assert (await take_in(now=just_before_midnight + timedelta(minutes=2)))["new"] == 1


async def test_a_run_takes_no_more_than_its_budget_and_the_next_goes_on(
    devices: int, server: SourceServer
) -> None:
    assert (await take_in(limit=5))["new"] == 5
    assert (await take_in(limit=5))["new"] == 5
    assert (await take_in(limit=5))["new"] == 2


async def test_a_run_that_must_stop_stops_between_two_records(
    devices: int, server: SourceServer
) -> None:
    passed = 0

    def checkpoint() -> None:
        nonlocal passed
        passed += 1
        if passed == 4:
            raise TimeoutError

    async with open_sources(read_settings()) as sources:
        cycle = Ingest(sources, 200)
        with pytest.raises(TimeoutError):
            await cycle.run(NOW, checkpoint)
    assert cycle.counts["new"] == await rows(Tender) == await rows(NotificationEvent) == 3
    assert (await take_in())["new"] == 9


async def test_two_runs_at_once_write_each_tender_once(devices: int, server: SourceServer) -> None:
    first, second = await asyncio.gather(take_in(), take_in())
    assert first["new"] + second["new"] == 12
    assert first["deliveries"] + second["deliveries"] == await rows(Delivery)
    assert await rows(Tender) == await rows(NotificationEvent) == await rows(RegisteredCode) == 12
