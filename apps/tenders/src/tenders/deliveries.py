"""What dispatch and receipts share: a run's clock and counters, outcomes that must be written, dead devices."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from sqlalchemy import Row, Select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast import CycleRun
from holdfast_leases import Claimed, LeasedTable, to_datetime, to_instant
from tenders.database import Session
from tenders.expo import ExpoPush
from tenders.models import Installation
from tenders.push import PushProvider
from tenders.settings import Settings, read_settings

T = TypeVar("T")

Clock = Callable[[], int | None]
"""The time in microseconds; None means that leases go by the database's clock."""

REAPED_AT_ONCE = 1_000

Changes = dict[Any, dict[str, Any]]
"""Columns to change, by the id of the delivery."""


def database_time() -> int | None:
    """Leave the time to the database."""
    return None


@dataclass(frozen=True, slots=True)
class Work:
    """One run of a cycle on deliveries: what it may do, and what it counts."""

    run: CycleRun
    settings: Settings
    clock: Clock = database_time

    @property
    def now(self) -> datetime:
        """The time to write into rows."""
        instant = self.clock()
        return datetime.now(UTC) if instant is None else to_datetime(instant)

    def count(self, counters: Mapping[str, int]) -> None:
        """Add to the counters of the run."""
        for name, number in counters.items():
            if number:
                self.run.count(name, number)


async def run_cycle(run: CycleRun, cycle: Callable[[Work, PushProvider], Awaitable[None]]) -> int:
    """Run a cycle with the settings and the provider of this process."""
    settings = read_settings()
    provider = ExpoPush.of(settings)
    try:
        await cycle(Work(run, settings), provider)
    finally:
        await provider.aclose()
    return 0  # it has counted as it went; a run that returns nothing counts as one item


async def repeat(work: Work, most: int, step: Callable[[int], Awaitable[bool]]) -> None:
    """Repeat a step, which gets how many items it may take, until it says that this is enough or no room is left."""
    while (room := work.run.room(most)) > 0 and not work.run.aborted:
        if not await step(room):
            return


async def reap(work: Work, queue: LeasedTable, values: Mapping[str, Any] | None = None) -> None:
    """Take back what dead workers held; what had its last attempt with that has failed."""
    async with Session.begin() as session:
        moment = stored(session, work.now)
        reaped = await queue.aio.reap(
            session,
            limit=REAPED_AT_ONCE,
            values={**(values or {}), "updated_at": moment},
            exhausted={"status": "failed", "completed_at": moment},
            now=work.clock(),
        )
    work.count({"reaped": len(reaped)})


async def claim(
    work: Work, queue: LeasedTable, limit: int, contents: Select[Any]
) -> tuple[Claimed, Sequence[Row[Any]]]:
    """Lease what is due, and select its contents by the claim's :token, in one transaction."""
    async with Session.begin() as session:
        claimed = await queue.aio.claim(
            session,
            work.run.worker,
            limit=limit,
            lease=work.settings.push_lease,
            now=work.clock(),
        )
        return claimed, (await session.execute(contents, {"token": claimed.token})).all()


@dataclass(frozen=True, slots=True)
class Device:
    """An installation, and the token under which it was addressed."""

    installation_id: UUID
    token: str


def stored(session: AsyncSession, moment: datetime) -> Any:
    """Return a time as the driver takes it where SQLAlchemy does not translate."""
    return to_instant(moment) if session.get_bind().dialect.name == "sqlite" else moment


async def switch_off(session: AsyncSession, devices: Mapping[Device, str], now: datetime) -> int:
    """Deactivate installations for a reason, unless they have another token by now; return how many."""
    switched_off = 0
    # In one order, as another replica may be about the same devices.
    for device in sorted(devices, key=lambda each: each.installation_id):
        result = await session.execute(
            update(Installation)
            .where(
                Installation.id == device.installation_id,
                Installation.push_token == device.token,
                Installation.is_active,
            )
            .values(is_active=False, deactivated_at=now, deactivated_because=devices[device])
            .returning(Installation.id)
        )
        switched_off += len(result.all())
    return switched_off


async def record(write: Callable[[AsyncSession], Awaitable[T]]) -> T:
    """Run a transaction that must not be lost, again if the database was busy or away for a moment.

    One that did commit finds its leases gone the second time, and changes nothing. Raises: the error of the last try.
    """
    for pause_s in PAUSES_S:
        try:
            return await _record_once(write)
        except _PASSING:
            await asyncio.sleep(pause_s)
    return await _record_once(write)


async def _record_once(write: Callable[[AsyncSession], Awaitable[T]]) -> T:
    async with Session.begin() as session:
        return await write(session)


PAUSES_S = (0.1, 1.0, 3.0)
_PASSING = (DBAPIError, psycopg.OperationalError, sqlite3.OperationalError)
