"""The cycle `ingest`: new tenders from their sources into the tables, each with its event and deliveries at once."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from uuid import uuid4

from sqlalchemy import and_, literal, select
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast import CycleRun, from_env
from holdfast.errors import ConfigError
from tenders.database import Session, insert_into
from tenders.jobs import jobs
from tenders.matching import is_wanted
from tenders.models import Delivery, Installation, NotificationEvent, RegisteredCode, Tender
from tenders.partitions import create_months
from tenders.sending import start_pushes
from tenders.settings import read_settings
from tenders.sources.api import ZONE
from tenders.sources.found import FoundTender, SourceFailed, TenderSource, merge
from tenders.sources.opening import open_sources

log = logging.getLogger("tenders.ingest")

MAX_ITEMS = 10_000
NEW_TENDER = "tender.new"
CODES_AT_A_TIME = 500
STORED_AT_A_TIME = 20
MAX_AGE = timedelta(days=730)
MAX_AHEAD = timedelta(days=2)


@jobs.cycle(
    "ingest",
    every=from_env("WORKER_INTERVAL_MINUTES", "2m"),
    timeout="5m",
    attempts=1,
    max_items=from_env("INGEST_MAX_ITEMS", 200),
)
async def ingest(run: CycleRun) -> int:
    """Take in what the sources list and the registry does not know."""
    async with open_sources(read_settings()) as sources:
        if not sources:
            raise ConfigError(
                "ingest has no source", help="set TENDERS_API_TICKET, TENDERS_PAGES_URL, or both"
            )
        cycle = Ingest(sources, run.room(MAX_ITEMS))
        try:
            await cycle.run(run.slot, run.checkpoint)
        finally:
            for name, number in cycle.counts.items():
                run.count(name, number)
    return cycle.counts["new"]


class AllSourcesFailed(Exception):
    """No source answered; the next slot tries again."""


class Ingest:
    """One run: gather, leave out what is known, complete, store. `counts` are the run's counters."""

    def __init__(self, sources: Sequence[TenderSource], limit: int) -> None:
        """Ask some sources, and take in a limited number of new tenders."""
        self._sources = {each.name: each for each in sources}
        self._limit = limit
        names = ("found", "new", "merged", "deliveries", "incomplete")
        self.counts = Counter(dict.fromkeys(names, 0))
        self.counts.update(dict.fromkeys((f"failed_{name}" for name in self._sources), 0))

    async def run(self, now: datetime, checkpoint: Callable[[], None]) -> None:
        """Take in what is new; `checkpoint` raises when the run must stop. Raises: AllSourcesFailed."""
        today = now.astimezone(ZONE).date()
        # What was published after yesterday's last run is on yesterday's list.
        descriptions = await self._gather([today - timedelta(days=1), today])
        self.counts["found"] = len(descriptions)
        new = await _unknown(list(descriptions))
        for group in _groups(new[: self._limit], STORED_AT_A_TIME):
            tenders = await asyncio.gather(
                *(self._complete(descriptions[code], now) for code in group)
            )
            await self._store([each for each in tenders if each], now, checkpoint)

    async def _gather(self, days: Sequence[date]) -> dict[str, list[FoundTender]]:
        """Ask all sources at once; return what they say by code, and count what they fail at."""
        sources = list(self._sources.values())
        answers = await asyncio.gather(*(each.find(days) for each in sources))
        descriptions: dict[str, list[FoundTender]] = defaultdict(list)
        for source, findings in zip(sources, answers, strict=True):
            self._fail(source.name, *findings.failures)
            for tender in findings.tenders:
                descriptions[tender.code].append(tender)
        if not descriptions and all(each.failures for each in answers):
            raise AllSourcesFailed("; ".join(each.failures[0] for each in answers))
        return descriptions

    async def _complete(
        self, descriptions: Sequence[FoundTender], now: datetime
    ) -> FoundTender | None:
        """Return one tender with its details; None leaves it for the next run."""
        details: list[FoundTender] = []
        for each in {each.sources: each for each in descriptions}.values():
            (name,) = each.sources
            try:
                details.append(await self._sources[name].complete(each))
            except SourceFailed as error:
                self._fail(name, f"{each.code}: {error}")
        if not details:
            return None
        tender = merge([*details, *descriptions])
        if tender.title is None:
            self.counts["incomplete"] += 1
            log.warning("%s has no title, and waits for one", tender.code)
            return None
        return replace(tender, published_at=_plausible(tender.published_at, now))

    async def _store(
        self, tenders: Sequence[FoundTender], now: datetime, checkpoint: Callable[[], None]
    ) -> None:
        async with Session.begin() as session:
            await create_months(session, [each.published_at or now for each in tenders])
        for tender in tenders:
            checkpoint()
            async with Session.begin() as session:
                deliveries = await store_tender(session, tender, now)
                await start_pushes(session, deliveries or [])
            if deliveries is not None:
                self.counts["new"] += 1
                self.counts["merged"] += len(tender.sources) > 1
                self.counts["deliveries"] += len(deliveries)

    def _fail(self, source: str, *failures: str) -> None:
        self.counts[f"failed_{source}"] += len(failures)
        for each in failures:
            log.warning("source %s: %s", source, each)


async def store_tender(
    session: AsyncSession, tender: FoundTender, now: datetime
) -> list[int] | None:
    """Claim the code, and write tender, event and deliveries with it; return their ids, None if it was claimed."""
    id = uuid4()
    code = insert_into(session, RegisteredCode).values(code=tender.code, tender_id=id)
    claim = code.on_conflict_do_nothing().returning(RegisteredCode.code)
    if await session.scalar(claim) is None:
        return None
    row = Tender(
        id=id,
        published_at=tender.published_at or now,
        code=tender.code,
        title=tender.title,
        description=tender.description,
        buyer=tender.buyer,
        region=tender.region,
        category=tender.category,
        kind=tender.kind,
        amount=tender.amount,
        closes_at=tender.closes_at,
        sources=",".join(tender.sources),
    )
    event = NotificationEvent(kind=NEW_TENDER, tender_id=id, tender_published_at=row.published_at)
    session.add_all([row, event])
    await session.flush()
    return await create_deliveries(session, event)


async def create_deliveries(session: AsyncSession, event: NotificationEvent) -> list[int]:
    """Write a delivery for every active installation that wants to hear of the event's tender; return their ids."""
    its_tender = and_(
        Tender.id == event.tender_id, Tender.published_at == event.tender_published_at
    )
    wanted = (
        select(literal(event.id), Installation.id)
        .join_from(Installation, Tender, its_tender)
        .where(Installation.is_active, is_wanted())
    )
    new = insert_into(session, Delivery).from_select(["event_id", "installation_id"], wanted)
    return list(await session.scalars(new.on_conflict_do_nothing().returning(Delivery.id)))


async def _unknown(codes: Sequence[str]) -> list[str]:
    """Return the codes that the registry does not know, in their order."""
    known: set[str] = set()
    async with Session() as session:
        for group in _groups(codes, CODES_AT_A_TIME):
            mine = select(RegisteredCode.code).where(RegisteredCode.code.in_(group))
            known.update(await session.scalars(mine))
    return [each for each in codes if each not in known]


def _groups(codes: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(codes), size):
        yield codes[start : start + size]


def _plausible(published_at: datetime | None, now: datetime) -> datetime:
    """Return when a tender was published; a date that cannot be true would get a month of its own."""
    if published_at is None or not now - MAX_AGE <= published_at <= now + MAX_AHEAD:
        return now
    return published_at
