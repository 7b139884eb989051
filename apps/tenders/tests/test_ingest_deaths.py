"""Runs of ingest die with -9 before every step, on both stores: no tender is without what belongs to it."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from apps.tenders.local.books import is_wanted_by
from apps.tenders.local.source_server import SourceServer
from apps.tenders.tests.conftest import environment
from apps.tenders.tests.dying import take_in
from apps.tenders.tests.pushing import NOON
from sqlalchemy import Select, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from tests.support.dying import DyingProcesses

from holdfast_testing.kit import Kit
from tenders.database import Session
from tenders.generated import generate_device, generate_tender
from tenders.jobs import jobs
from tenders.models import Delivery, NotificationEvent, Preference, RegisteredCode, Tender
from tenders.sources.found import FoundTender


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> Iterator[SourceServer]:
    """Sources that stay while runs die."""
    server = SourceServer()
    for name, value in server.variables(server.start()).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TENDERS_PAGES", "1")
    yield server
    server.close()


@pytest.fixture
async def mortals(
    kit: Kit, sources: SourceServer, url: str, tmp_path: Path
) -> AsyncIterator[DyingProcesses]:
    """Runs that die, with devices to notify."""
    async with Session.begin() as session:
        new = [generate_device(number) for number in range(30)]
        session.add_all([each.installation for each in new])
        await session.flush()
        session.add_all([each.preference for each in new])
    mortals = DyingProcesses("apps.tenders.tests.dying", url, tmp_path / "steps", environment(url))
    yield mortals
    mortals.close()


@pytest.mark.timeout(600)
async def test_whichever_step_an_ingest_dies_at_nothing_is_lost_between_tender_and_delivery(
    mortals: DyingProcesses, sources: SourceServer
) -> None:
    died_at: set[str] = set()
    for step in itertools.count(1):
        new = [generate_tender(step * 10 + each, NOON) for each in range(2)]
        sources.api, sources.pages = new, new[:1]
        steps = await mortals.die("ingest", step, 0)
        await check_that_what_is_there_is_whole(new)
        await take_in()
        assert await check_that_what_is_there_is_whole(new) == 2
        if steps is None:
            break
        died_at.add(steps[-1])
    assert died_at >= {"statement", "commit", "committed"}
    assert died_at >= {"find", "find done", "complete", "complete done"}


async def check_that_what_is_there_is_whole(tenders: list[FoundTender]) -> int:
    """Check that a tender is there with its code, its event and all its deliveries, or not at all; count them."""
    found = 0
    async with Session() as session:
        preferences = list(await session.scalars(select(Preference)))
        for tender in tenders:
            wanted = sum(is_wanted_by(each, tender) for each in preferences)
            rows = [
                await session.scalar(select(func.count()).select_from(model).where(condition))
                for model, condition in (
                    (Tender, Tender.code == tender.code),
                    (RegisteredCode, RegisteredCode.code == tender.code),
                    (NotificationEvent, NotificationEvent.tender_id.in_(ids_of(tender))),
                    (Delivery, Delivery.event_id.in_(events_of(tender))),
                )
            ]
            rows.append(await count_pushes(session, tender))
            assert rows in ([0, 0, 0, 0, 0], [1, 1, 1, wanted, wanted])
            found += rows[0] or 0
    return found


async def count_pushes(session: AsyncSession, tender: FoundTender) -> int:
    """Count a tender's deliveries that have a job."""
    mine = select(Delivery.id).where(Delivery.event_id.in_(events_of(tender)))
    ids = set(await session.scalars(mine))
    started = await jobs.aio.jobs.list("type:push.send", limit=1_000)
    return sum(each.input in ids for each in started)


def ids_of(tender: FoundTender) -> Select[tuple[UUID]]:
    """Return the query for a tender's id."""
    return select(Tender.id).where(Tender.code == tender.code)


def events_of(tender: FoundTender) -> Select[tuple[int]]:
    """Return the query for a tender's events."""
    return select(NotificationEvent.id).where(NotificationEvent.tender_id.in_(ids_of(tender)))
