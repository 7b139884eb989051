"""What pushes and receipts share: the time, outcomes that must be written, dead devices."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

import psycopg
from sqlalchemy import update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast_leases import to_datetime
from tenders.database import Session
from tenders.jobs import jobs
from tenders.models import Installation

T = TypeVar("T")


def now() -> datetime:
    """Return the time to write into rows; a test may have set it."""
    instant = jobs.instant()
    return datetime.now(UTC) if instant is None else to_datetime(instant)


@dataclass(frozen=True, slots=True)
class Device:
    """An installation, and the token under which it was addressed."""

    installation_id: UUID
    token: str


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
