"""Which installation wants to hear of which tender."""

import tracemalloc
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.dialects import sqlite

from holdfast_testing.kit import Kit
from tenders.database import Session
from tenders.generated import generate_device, generate_tender
from tenders.ingest import store_tender
from tenders.matching import is_wanted
from tenders.models import Codes, Delivery, Installation, Preference, Tender
from tenders.partitions import create_months
from tenders.sources.found import FoundTender

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
TENDER = FoundTender(
    code="1057389-12-LE26",
    sources=("api",),
    title="Insumos médicos",
    region="13",
    category="42",
    amount=20_000_000,
    published_at=NOON,
)


async def is_matched(tender: FoundTender, **preference: Any) -> bool:
    """Return whether one installation with a preference is notified of a tender."""
    async with Session.begin() as session:
        await create_months(session, [NOON])
        installation = Installation(push_token="ExponentPushToken[a]", platform="ios")
        session.add(installation)
        await session.flush()
        session.add(Preference(installation_id=installation.id, **preference))
        await session.flush()
        matched = await store_tender(session, tender, NOON)
        wanted = select(Installation.id).join_from(Tender, Installation, is_wanted())
        assert bool(await session.scalar(wanted)) == bool(matched), "ingest and dispatch differ"
        return bool(matched)


@pytest.mark.parametrize(
    ("preference", "matches"),
    [
        ({}, True),
        ({"is_enabled": False}, False),
        ({"regions": {"13"}}, True),
        ({"regions": {"05", "13"}}, True),
        ({"regions": {"05"}}, False),
        ({"categories": {"42"}}, True),
        ({"categories": {"43"}}, False),
        ({"kinds": {"LE", "LP"}}, True),
        ({"kinds": {"L1"}}, False),
        ({"amount_min": 20_000_000}, True),
        ({"amount_min": 20_000_001}, False),
        ({"amount_max": 20_000_000}, True),
        ({"amount_max": 19_999_999}, False),
        ({"amount_min": 1, "amount_max": 2}, False),
        ({"regions": {"13"}, "categories": {"42"}, "kinds": {"LE"}, "amount_min": 1}, True),
        ({"regions": {"13"}, "categories": {"43"}}, False),
    ],
)
async def test_a_tender_matches_a_preference_in_every_respect(
    kit: Kit, preference: dict[str, Any], matches: bool
) -> None:
    assert await is_matched(TENDER, **preference) is matches


@pytest.mark.parametrize(
    ("preference", "matches"),
    [
        ({}, True),
        ({"regions": {"13"}}, False),
        ({"categories": {"42"}}, False),
        ({"kinds": {"LE"}}, False),
        ({"amount_min": 1}, False),
        ({"amount_max": 10**12}, False),
    ],
)
async def test_what_a_tender_lacks_matches_only_those_who_do_not_ask_for_it(
    kit: Kit, preference: dict[str, Any], matches: bool
) -> None:
    bare = FoundTender(code="without", sources=("pages",), title="Papel", published_at=NOON)
    assert await is_matched(bare, **preference) is matches


async def test_a_part_of_a_code_is_not_the_code(kit: Kit) -> None:
    assert not await is_matched(TENDER, regions={"113", "3", "1"})


def test_a_code_with_a_bar_in_it_is_refused() -> None:
    with pytest.raises(ValueError, match="a bar in it"):
        Codes().process_bind_param(frozenset({"1|3"}), sqlite.dialect())


async def test_an_inactive_installation_and_one_without_preferences_hear_of_nothing(
    kit: Kit,
) -> None:
    async with Session.begin() as session:
        await create_months(session, [NOON])
        off = Installation(push_token="ExponentPushToken[a]", platform="ios", is_active=False)
        session.add_all([off, Installation(push_token="ExponentPushToken[b]", platform="ios")])
        await session.flush()
        session.add(Preference(installation_id=off.id))
        await session.flush()
        assert await store_tender(session, TENDER, NOON) == []


async def test_many_tenders_are_matched_to_many_devices_in_little_memory(kit: Kit) -> None:
    async with Session.begin() as session:
        await create_months(session, [NOON])
        devices = [generate_device(number) for number in range(1_000)]
        session.add_all([each.installation for each in devices])
        await session.flush()
        session.add_all([each.preference for each in devices])
    del devices
    tracemalloc.start()
    deliveries = 0
    for number in range(50):
        async with Session.begin() as session:
            stored = await store_tender(session, generate_tender(number, NOON), NOON)
        deliveries += len(stored or ())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    async with Session() as session:
        assert await session.scalar(select(func.count()).select_from(Delivery)) == deliveries > 500
    assert peak < 4_000_000, "rows of the match passed through the process"
