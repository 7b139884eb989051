"""The cycle `receipt`: asks what became of accepted pushes, on every replica at once.

Nothing in it sends: what a device was too busy for is left to `dispatch`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from sqlalchemy import Row, bindparam, select
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast import CycleRun, Retry, from_env
from holdfast_leases import PUSH_BACKOFF, AsyncKeptRows, Claimed, LeasedTable, RowRetry, to_instant
from tenders.database import Session
from tenders.deliveries import Device, now, record, switch_off
from tenders.expo import ExpoPush
from tenders.jobs import jobs
from tenders.models import SENT, Delivery
from tenders.push import (
    Confirmed,
    Failed,
    Invalid,
    PushProvider,
    ReceiptOutcome,
    ReceiptsUnavailable,
    Retryable,
)
from tenders.settings import Settings, read_settings

Changes: TypeAlias = dict[Any, dict[str, Any]]
"""Columns to change, by the id of the delivery."""

QUEUE = LeasedTable(
    "notification_deliveries",
    due="provider_ticket_id is not null",
    where=SENT,
    order="id",
    # Tickets are given up by their age, not by how often they were asked for.
    retry=RowRetry(
        "receipt_count", "next_receipt_at", Retry(base="1m", cap="60m", max_attempts=None)
    ),
)

MAX_ATTEMPTS = PUSH_BACKOFF.max_attempts or 1
REAPED_AT_ONCE = 1_000

log = logging.getLogger("tenders.receipts")


@jobs.cycle(
    "receipt",
    every=from_env("RECEIPT_INTERVAL_MINUTES", "1m"),
    max_items=from_env("RECEIPT_MAX_ITEMS", 10_000),
    timeout="5m",
    singleton=False,
)
async def receipt(run: CycleRun) -> int:
    """Fetch the receipts that are due."""
    settings = read_settings()
    provider = ExpoPush.of(settings)
    try:
        await fetch_due(run, settings, provider)
    finally:
        await provider.aclose()
    return 0  # it has counted as it went; a run that returns nothing counts as one item


async def fetch_due(run: CycleRun, settings: Settings, provider: PushProvider) -> None:
    """Fetch batch after batch until no ticket is due, the run's items are used up, or the provider is down."""
    await _reap(run)
    goes_on = True
    while goes_on and (room := run.room(provider.max_tickets)) > 0 and not run.aborted:
        claimed, tickets = await _claim(run, settings, room)
        goes_on = bool(tickets) and await _settle(run, settings, provider, claimed, tickets)


async def _reap(run: CycleRun) -> None:
    """Take back what dead workers held."""
    async with Session.begin() as session:
        values = {"updated_at": _stored(session, now())}
        reaped = await QUEUE.aio.reap(
            session, limit=REAPED_AT_ONCE, values=values, now=jobs.instant()
        )
    _count(run, {"reaped": len(reaped)})


def _count(run: CycleRun, counters: Mapping[str, int]) -> None:
    for name, number in counters.items():
        if number:
            run.count(name, number)


def _stored(session: AsyncSession, moment: datetime) -> Any:
    """Return a time as the driver takes it where SQLAlchemy does not translate."""
    return to_instant(moment) if session.get_bind().dialect.name == "sqlite" else moment


@dataclass(frozen=True, slots=True)
class Ticket:
    """A claimed delivery that the provider has accepted."""

    delivery_id: int
    id: str
    device: Device
    sent_at: datetime
    attempts: int


_TICKETS = (
    select(
        Delivery.id,
        Delivery.provider_ticket_id,
        Delivery.installation_id,
        Delivery.sent_to,
        Delivery.sent_at,
        Delivery.attempt_count,
    )
    .where(Delivery.lock_token == bindparam("token"))
    .order_by(Delivery.id)
)


def _ticket(row: Row[Any]) -> Ticket:
    device = Device(row.installation_id, row.sent_to)
    return Ticket(row.id, row.provider_ticket_id, device, row.sent_at, row.attempt_count)


async def _claim(run: CycleRun, settings: Settings, limit: int) -> tuple[Claimed, list[Ticket]]:
    """Lease deliveries whose receipts are due."""
    lease = settings.push_lease
    async with Session.begin() as session:
        claimed = await QUEUE.aio.claim(
            session, run.worker, limit=limit, lease=lease, now=jobs.instant()
        )
        rows = await session.execute(_TICKETS, {"token": claimed.token})
        return claimed, [_ticket(each) for each in rows]


async def _settle(
    run: CycleRun,
    settings: Settings,
    provider: PushProvider,
    claimed: Claimed,
    tickets: Sequence[Ticket],
) -> bool:
    """Fetch a batch of receipts and record them; return whether the provider gives more."""
    receipts: Mapping[str, ReceiptOutcome] = {}
    failure: ReceiptsUnavailable | None = None
    async with QUEUE.aio.keep(run, claimed) as kept:
        try:
            receipts = await provider.fetch_receipts([each.id for each in tickets])
        except ReceiptsUnavailable as unavailable:
            failure = unavailable
            log.warning("receipts could not be fetched: %s", unavailable)
        batch = _Batch(settings, kept, tickets, receipts, failure)
        counters = await record(batch.write)
    run.counts.processed += len(tickets)
    _count(run, counters)
    return failure is None


class _Batch:
    """What one claim holds, what was found out about it, and how that is written."""

    def __init__(
        self,
        settings: Settings,
        kept: AsyncKeptRows,
        tickets: Sequence[Ticket],
        receipts: Mapping[str, ReceiptOutcome],
        failure: ReceiptsUnavailable | None,
    ) -> None:
        self._settings = settings
        self._kept = kept
        self._tickets = tickets
        self._failure = failure
        self._now = now()
        self._outcomes: dict[int, ReceiptOutcome] = {}
        for each in tickets:
            outcome = receipts.get(each.id) or self._give_up(each)
            if isinstance(outcome, Retryable) and each.attempts >= MAX_ATTEMPTS:
                outcome = Failed(outcome.code, outcome.message)
            if outcome is not None:
                self._outcomes[each.delivery_id] = outcome

    async def write(self, session: AsyncSession) -> Counter[str]:
        """Write all outcomes in one transaction; return what was counted."""
        final = {
            each.delivery_id: self._columns(session, each, self._outcomes[each.delivery_id])
            for each in self._tickets
            if each.delivery_id in self._outcomes
        }
        waiting: Changes = {
            each.delivery_id: {"updated_at": _stored(session, self._now)}
            for each in self._tickets
            if each.delivery_id not in self._outcomes
        }
        finished = await self._kept.finish(session, final)
        after = timedelta() if self._failure is None else self._failure.after
        retried = await self._kept.retry(session, waiting, at_least=after, now=jobs.instant())
        counters = Counter(_status(self._outcomes[id]) for id in finished)
        counters["waiting"] = len(retried.delayed)
        counters["lost"] = len(self._tickets) - counters.total()
        counters["switched_off"] = await switch_off(session, self._gone(), self._now)
        counters["fetch_failed"] = int(self._failure is not None)
        return counters

    def _give_up(self, ticket: Ticket) -> Failed | None:
        limit = self._settings.receipt_give_up
        if self._now - ticket.sent_at < limit:
            return None
        return Failed("ReceiptExpired", f"no receipt within {limit}; the push had been accepted")

    def _columns(
        self, session: AsyncSession, ticket: Ticket, outcome: ReceiptOutcome
    ) -> dict[str, Any]:
        """Return the columns of a delivery that has ended, or is to be sent again. The tender stays notified."""
        moment = _stored(session, self._now)
        if isinstance(outcome, Retryable):
            delay = timedelta(milliseconds=PUSH_BACKOFF.delay_ms(ticket.attempts))
            return {
                "status": "retryable",
                "provider_ticket_id": None,
                "next_attempt_at": _stored(session, self._now + delay),
                "last_error_code": outcome.code,
                "last_error_message": outcome.message,
                "updated_at": moment,
            }
        columns = {"status": _status(outcome), "completed_at": moment, "updated_at": moment}
        if isinstance(outcome, Confirmed):
            return columns | {"provider_receipt_id": ticket.id}
        columns |= {"last_error_code": outcome.code, "last_error_message": outcome.message}
        # A receipt that never came has no id.
        return (
            columns
            if outcome.code == "ReceiptExpired"
            else columns | {"provider_receipt_id": ticket.id}
        )

    def _gone(self) -> dict[Device, str]:
        return {
            each.device: outcome.code
            for each in self._tickets
            if isinstance(outcome := self._outcomes.get(each.delivery_id), Invalid)
        }


def _status(outcome: ReceiptOutcome) -> str:
    return "ok" if isinstance(outcome, Confirmed) else type(outcome).__name__.lower()
