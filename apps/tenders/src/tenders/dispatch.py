"""The cycle `dispatch`: sends what is due, on every replica at once. A delivery belongs to the claim that leased it."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Row, and_, bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast import CycleRun, from_env
from holdfast_leases import PUSH_BACKOFF, AsyncKeptRows, Claimed, LeasedTable, RowRetry
from tenders.deliveries import (
    Changes,
    Device,
    Work,
    claim,
    reap,
    record,
    repeat,
    run_cycle,
    stored,
    switch_off,
)
from tenders.jobs import jobs
from tenders.matching import is_wanted
from tenders.models import DUE, Delivery, Installation, NotificationEvent, Tender
from tenders.push import Failed, Invalid, PushMessage, PushProvider, Retryable, SendOutcome, Sent

QUEUE = LeasedTable(
    "notification_deliveries",
    due="completed_at is null",
    where=DUE,
    order="id",
    retry=RowRetry("attempt_count", "next_attempt_at", PUSH_BACKOFF),
)

MAX_BODY_LENGTH = 500

# The reason on record when a device gets the same notification again.
WORKER_LOST = {
    "status": "retryable",
    "last_error_code": "WorkerLost",
    "last_error_message": "its worker died or was too slow to record an outcome; it may have been accepted",
}


@jobs.cycle(
    "dispatch",
    every=from_env("DISPATCH_INTERVAL_MINUTES", "1m"),
    max_items=from_env("DISPATCH_MAX_ITEMS", 5_000),
    timeout="5m",
    singleton=False,
)
async def dispatch(run: CycleRun) -> int:
    """Send every notification that is due."""
    return await run_cycle(run, send_due)


async def send_due(work: Work, provider: PushProvider) -> None:
    """Send batch after batch until nothing is due, the run's items are used up, or the provider is down."""

    async def send_batch(room: int) -> bool:
        claimed, rows = await claim(work, QUEUE, room, _CONTENTS)
        return bool(rows) and await _deliver(work, provider, claimed, list(map(_parcel, rows)))

    await reap(work, QUEUE, WORKER_LOST)
    await repeat(work, provider.max_messages, send_batch)


@dataclass(frozen=True, slots=True)
class Parcel:
    """A claimed delivery and what is to be sent, or why nothing is."""

    id: int
    device: Device
    tender: tuple[UUID, datetime]
    content: PushMessage | Failed


_CONTENTS = (
    select(
        Delivery.id,
        Delivery.installation_id,
        Installation.push_token,
        Installation.is_active,
        NotificationEvent.tender_id,
        NotificationEvent.tender_published_at,
        Tender.code,
        Tender.title,
        Tender.buyer,
        is_wanted().label("is_wanted"),
    )
    .join(Installation, Installation.id == Delivery.installation_id)
    .join(NotificationEvent, NotificationEvent.id == Delivery.event_id)
    .outerjoin(
        Tender,
        and_(
            Tender.id == NotificationEvent.tender_id,
            Tender.published_at == NotificationEvent.tender_published_at,
        ),
    )
    .where(Delivery.lock_token == bindparam("token"))
    .order_by(Delivery.id)
)


def _parcel(row: Row[Any]) -> Parcel:
    content: PushMessage | Failed
    if row.code is None:
        content = Failed("TenderArchived", "the tender is no longer among the current ones")
    elif not row.is_active:
        content = Failed("InstallationInactive", "the installation was deactivated")
    elif not row.is_wanted:
        content = Failed("PreferencesChanged", "the preferences no longer match this tender")
    else:
        content = PushMessage(
            row.push_token,
            row.buyer or "New tender",
            row.title[:MAX_BODY_LENGTH],
            {"code": row.code, "deliveryId": str(row.id)},
        )
    device = Device(row.installation_id, row.push_token)
    return Parcel(row.id, device, (row.tender_id, row.tender_published_at), content)


async def _deliver(
    work: Work, provider: PushProvider, claimed: Claimed, parcels: Sequence[Parcel]
) -> bool:
    """Send a batch and record what became of it; return whether the provider takes more."""
    async with QUEUE.aio.keep(work.run, claimed) as kept:
        batch = _Batch(work, kept, parcels)
        try:
            answers = await provider.send(list(batch.messages.values()))
        except asyncio.CancelledError:
            stopped = Retryable("Interrupted", "the run was stopped; it may have been accepted")
            await batch.record(dict.fromkeys(batch.messages, stopped))
            raise
        await batch.record({**batch.refusals, **dict(zip(batch.messages, answers, strict=True))})
    return not any(isinstance(each, Retryable) and each.is_outage for each in answers)


class _Batch:
    """What one claim holds, and how its outcomes are written."""

    def __init__(self, work: Work, kept: AsyncKeptRows, parcels: Sequence[Parcel]) -> None:
        self._work = work
        self._kept = kept
        self._parcels = {each.id: each for each in parcels}
        contents = {each.id: each.content for each in parcels}
        self.messages = {id: each for id, each in contents.items() if isinstance(each, PushMessage)}
        self.refusals = {id: each for id, each in contents.items() if isinstance(each, Failed)}

    async def record(self, outcomes: Mapping[int, SendOutcome]) -> None:
        """Write all outcomes, with what follows from them, in one transaction; count those that were accepted."""
        counters = await record(lambda session: self._write(session, outcomes))
        self._work.run.counts.processed += len(outcomes)
        self._work.count(counters)

    async def _write(
        self, session: AsyncSession, outcomes: Mapping[int, SendOutcome]
    ) -> Counter[str]:
        now = self._work.now
        final = {
            id: self._columns(session, self._parcels[id], outcome, now)
            for id, outcome in outcomes.items()
            if not isinstance(outcome, Retryable)
        }
        finished = await self._kept.finish(session, final)
        counters = Counter(_status(outcomes[id]) for id in finished)
        counters += await self._retry(session, outcomes, now)
        # Another claim owns the rest by now: it decides about them.
        counters["lost"] = len(outcomes) - counters.total()
        counters["switched_off"] = await switch_off(session, self._gone(outcomes), now)
        sent = [self._parcels[id].tender for id in finished if isinstance(outcomes[id], Sent)]
        counters["tenders_notified"] = await _mark_notified(session, sent, now)
        return counters

    async def _retry(
        self,
        session: AsyncSession,
        outcomes: Mapping[int, SendOutcome],
        now: datetime,
    ) -> Counter[str]:
        """Let deliveries wait for their next attempt, or fail those that had their last."""
        waits: dict[timedelta, Changes] = defaultdict(dict)
        for id, outcome in outcomes.items():
            if isinstance(outcome, Retryable):
                columns = {"status": "retryable", "updated_at": stored(session, now)}
                waits[outcome.after][id] = columns | _error(outcome)
        counters: Counter[str] = Counter()
        for at_least, changes in waits.items():
            retried = await self._kept.retry(
                session,
                changes,
                exhausted={"status": "failed", "completed_at": stored(session, now)},
                at_least=at_least,
                now=self._work.clock(),
            )
            counters["retryable"] += len(retried.delayed)
            counters["failed"] += len(retried.exhausted)
        return counters

    def _columns(
        self, session: AsyncSession, parcel: Parcel, outcome: Sent | Failed | Invalid, now: datetime
    ) -> dict[str, Any]:
        """Return the columns of a delivery that is not tried again; what an earlier attempt met stays on record."""
        moment = stored(session, now)
        columns: dict[str, Any] = {"status": _status(outcome), "updated_at": moment}
        if not isinstance(outcome, Sent):
            return columns | _error(outcome) | {"completed_at": moment}
        return columns | {
            "provider_ticket_id": outcome.ticket,
            "sent_to": parcel.device.token,
            "sent_at": moment,
            "receipt_count": 0,
            "next_receipt_at": stored(session, now + self._work.settings.receipt_least_age),
        }

    def _gone(self, outcomes: Mapping[int, SendOutcome]) -> dict[Device, str]:
        """Return the devices that cannot be reached, and why; that is so whichever claim found out."""
        return {
            self._parcels[id].device: outcome.code
            for id, outcome in outcomes.items()
            if isinstance(outcome, Invalid)
        }


async def _mark_notified(
    session: AsyncSession, tenders: Sequence[tuple[UUID, datetime]], now: datetime
) -> int:
    """Mark tenders of which a first device was notified; nothing takes the mark back."""
    marked = 0
    # In one order, as other replicas may be about the same tenders.
    for id, published_at in sorted(set(tenders)):
        result = await session.execute(
            update(Tender)
            .where(Tender.id == id, Tender.published_at == published_at, ~Tender.is_notified)
            .values(is_notified=True, notified_at=now)
            .returning(Tender.id)
        )
        marked += len(result.all())
    return marked


def _status(outcome: Sent | Failed | Invalid | Retryable) -> str:
    return type(outcome).__name__.lower()


def _error(outcome: Failed | Invalid | Retryable) -> dict[str, Any]:
    return {"last_error_code": outcome.code, "last_error_message": outcome.message}
