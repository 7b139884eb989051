"""The job `push.send`, one for each delivery; a call sends up to a hundred.

A delivery's row says what became of it, and who is about to send it; its job has the lease, the waits and the rate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Row, and_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast import Busy, Chain, Job, Rate, Snooze, from_env
from holdfast_leases import PUSH_BACKOFF
from tenders.database import Session
from tenders.deliveries import Device, now, record, switch_off
from tenders.expo import ExpoPush
from tenders.jobs import jobs
from tenders.matching import is_wanted
from tenders.models import Delivery, DeliveryStatus, Installation, NotificationEvent, Tender
from tenders.push import Failed, Invalid, PushMessage, Retryable, SendOutcome, Sent
from tenders.settings import read_settings

MAX_ATTEMPTS = PUSH_BACKOFF.max_attempts or 1
MAX_BODY_LENGTH = 500
INTERRUPTED = Retryable("Interrupted", "the worker was stopped; it may have been accepted")

# The reason on record when a device gets the same notification again.
WORKER_LOST = Retryable(
    "WorkerLost", "its worker died or was too slow to record an outcome; it may have been accepted"
)


async def start_pushes(session: AsyncSession, deliveries: Sequence[int]) -> list[Chain[Any]]:
    """Start the jobs that send deliveries, as part of a transaction; one that is under way is not started again."""
    keys = [f"push:{each}" for each in deliveries]
    return await jobs.start_many(session, send_pushes, deliveries, keys=keys)


@jobs.job(
    "push.send",
    batch=ExpoPush.max_messages,
    rates=[Rate(600, "1s")],  # what Expo takes of a project
    retry=PUSH_BACKOFF,
    lease=from_env("PUSH_LEASE", "60s"),
    timeout="5m",
    concurrency=1,  # so that an outage costs no more than one call of each worker an attempt
)
async def send_pushes(pushes: list[Job[int]]) -> list[Any]:
    """Send in one call what is still to be sent, and record what becomes of it; that ends each job.

    The outcomes are committed before the jobs end. If the worker dies in between, the next attempt finds them.
    """
    outage.check()
    claim = str(uuid4())
    async with Session.begin() as session:
        parcels = await _claim(session, pushes, claim)
    outcomes = await _send(parcels.values())
    outage.note(outcomes.values())
    ends = await record(lambda session: _write(session, claim, parcels, outcomes))
    return [ends.get(each.input) for each in pushes]


@dataclass(frozen=True, slots=True)
class Parcel:
    """A delivery that is to be sent, and what; or why nothing is."""

    id: int
    attempt: int
    is_last: bool
    device: Device
    tender: tuple[UUID, datetime]
    content: PushMessage | Failed


_CONTENTS = (
    select(
        Delivery,
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
    .order_by(Delivery.id)
    .with_for_update(of=Delivery)
)


async def _claim(
    session: AsyncSession, pushes: Sequence[Job[int]], claim: str
) -> dict[int, Parcel]:
    """Begin an attempt at each delivery that has not ended; from now on, only this claim's outcome counts for it."""
    moment = now()
    mine = {each.input: each for each in pushes}
    parcels: dict[int, Parcel] = {}
    for row in await session.execute(_CONTENTS.where(Delivery.id.in_(mine))):
        delivery, job = row.Delivery, mine[row.Delivery.id]
        if not _is_open(delivery, job):
            continue
        if delivery.lock_token is not None:
            _note_failure(delivery, WORKER_LOST)
            delivery.status = DeliveryStatus.RETRYABLE
        if delivery.status is DeliveryStatus.FAILED:
            delivery.status, delivery.completed_at = DeliveryStatus.RETRYABLE, None
        delivery.attempt_count += 1
        delivery.locked_by, delivery.lock_token = job.worker, claim
        delivery.updated_at = moment
        parcels[delivery.id] = _parcel(row, max(delivery.attempt_count, job.attempt))
    return parcels


def _is_open(delivery: Delivery, job: Job[int]) -> bool:
    """Say whether a delivery is to be sent: it has not ended, or had failed and its job was redriven."""
    is_redriven = delivery.status is DeliveryStatus.FAILED and job.attempt == 1
    return delivery.status in (DeliveryStatus.PENDING, DeliveryStatus.RETRYABLE) or is_redriven


def _parcel(row: Row[Any], attempt: int) -> Parcel:
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
            {"code": row.code, "deliveryId": str(row.Delivery.id)},
        )
    return Parcel(
        row.Delivery.id,
        row.Delivery.attempt_count,
        attempt >= MAX_ATTEMPTS,
        Device(row.Delivery.installation_id, row.push_token),
        (row.tender_id, row.tender_published_at),
        content,
    )


async def _send(parcels: Iterable[Parcel]) -> dict[int, SendOutcome]:
    """Send what is to be sent; return an outcome for each parcel."""
    contents = {each.id: each.content for each in parcels}
    messages = {id: each for id, each in contents.items() if isinstance(each, PushMessage)}
    refusals = {id: each for id, each in contents.items() if isinstance(each, Failed)}
    if not messages:
        return {**refusals}
    provider = ExpoPush.of(read_settings())
    try:
        answers = await provider.send(list(messages.values()))
    except asyncio.CancelledError:
        answers = [INTERRUPTED] * len(messages)
    finally:
        await provider.aclose()
    return {**refusals, **dict(zip(messages, answers, strict=True))}


class Outage:
    """Keeps a provider that failed as a whole from costing all pushes their attempts: no worker sends for a while."""

    def __init__(self) -> None:
        """Begin without one."""
        self.until: datetime | None = None
        self._cause = ""

    def check(self) -> None:
        """Raises: Busy, while the provider is left alone."""
        if self.until is not None and now() < self.until:
            raise Busy(self.until, f"the push service failed: {self._cause}", key=True)

    def note(self, outcomes: Iterable[SendOutcome]) -> None:
        """Begin one if a call failed as a whole."""
        for each in outcomes:
            if isinstance(each, Retryable) and each.is_outage:
                pause = max(read_settings().push_pause, each.after)
                self.until, self._cause = now() + pause, each.code
                return


outage = Outage()


class NotSent(Exception):
    """A push that the provider did not take; `retryable` and `retry_after_ms` are what the worker goes by."""

    def __init__(self, cause: Retryable, wait: timedelta, *, is_last: bool) -> None:
        """Wait for the next attempt, unless this was the last."""
        super().__init__(f"{cause.code}: {cause.message}")
        self.retryable = not is_last
        self.retry_after_ms = wait // timedelta(milliseconds=1)


async def _write(
    session: AsyncSession,
    claim: str,
    parcels: Mapping[int, Parcel],
    outcomes: Mapping[int, SendOutcome],
) -> dict[int, Any]:
    """Write outcomes and what follows from them; return how the job of each delivery ends."""
    moment = now()
    # Another attempt has the rest by now; their jobs ask later what became of it.
    ends: dict[int, Any] = dict.fromkeys(outcomes, Snooze(read_settings().push_lease))
    held = select(Delivery).where(Delivery.lock_token == claim).order_by(Delivery.id)
    for delivery in await session.scalars(held.with_for_update()):
        parcel, outcome = parcels[delivery.id], outcomes[delivery.id]
        ends[delivery.id] = _write_one(delivery, parcel, outcome, moment)
    await session.flush()
    gone = {
        parcels[id].device: each.code for id, each in outcomes.items() if isinstance(each, Invalid)
    }
    await switch_off(session, gone, moment)
    await _mark_notified(
        session, [parcels[id].tender for id, end in ends.items() if end == "sent"], moment
    )
    return ends


def _write_one(delivery: Delivery, parcel: Parcel, outcome: SendOutcome, moment: datetime) -> Any:
    """Write what became of a delivery; return the output of its job, or the error that it is tried again for."""
    if isinstance(outcome, Sent):
        # What an earlier attempt met stays on record.
        delivery.status = DeliveryStatus.SENT
        delivery.provider_ticket_id = outcome.ticket
        delivery.sent_to, delivery.sent_at = parcel.device.token, moment
        delivery.receipt_count = 0
        delivery.next_receipt_at = moment + read_settings().receipt_least_age
        _release(delivery, moment)
        return "sent"
    _note_failure(delivery, outcome)
    if isinstance(outcome, Invalid | Failed):
        invalid = isinstance(outcome, Invalid)
        _end(delivery, DeliveryStatus.INVALID if invalid else DeliveryStatus.FAILED, moment)
        return delivery.status.value
    wait = max(timedelta(milliseconds=PUSH_BACKOFF.delay_ms(parcel.attempt)), outcome.after)
    if parcel.is_last:
        _end(delivery, DeliveryStatus.FAILED, moment)
    else:
        _release(delivery, moment)
        delivery.status, delivery.next_attempt_at = DeliveryStatus.RETRYABLE, moment + wait
    return NotSent(outcome, wait, is_last=parcel.is_last)


def fail(delivery: Delivery, cause: Failed, moment: datetime) -> None:
    """End a delivery whose job has failed without it."""
    _note_failure(delivery, cause if delivery.lock_token is None else WORKER_LOST)
    _end(delivery, DeliveryStatus.FAILED, moment)


def _note_failure(delivery: Delivery, cause: Retryable | Failed | Invalid) -> None:
    delivery.last_error_code, delivery.last_error_message = cause.code, cause.message


def _end(delivery: Delivery, status: DeliveryStatus, moment: datetime) -> None:
    _release(delivery, moment)
    delivery.status, delivery.completed_at = status, moment


def _release(delivery: Delivery, moment: datetime) -> None:
    delivery.locked_by = delivery.lock_token = delivery.locked_until = None
    delivery.next_attempt_at = None
    delivery.updated_at = moment


async def _mark_notified(
    session: AsyncSession, tenders: Sequence[tuple[UUID, datetime]], now: datetime
) -> None:
    """Mark tenders of which a first device was notified; nothing takes the mark back."""
    # In one order, as other replicas may be about the same tenders.
    for id, published_at in sorted(set(tenders)):
        await session.execute(
            update(Tender)
            .where(Tender.id == id, Tender.published_at == published_at, ~Tender.is_notified)
            .values(is_notified=True, notified_at=now)
        )
