"""The months of `tenders`: PostgreSQL keeps each in a partition of its own, which has to exist before its first row."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

_CREATE = text("select create_tenders_month(:month)")


def month_of(moment: datetime) -> date:
    """Return the first day of a moment's month, in UTC as the partitions are."""
    return moment.astimezone(UTC).date().replace(day=1)


async def create_months(session: AsyncSession, moments: Iterable[datetime]) -> None:
    """Create the partitions that the moments need, where they do not exist; nothing to do on SQLite."""
    if session.get_bind().dialect.name == "postgresql":
        for month in sorted({month_of(each) for each in moments}):
            await session.execute(_CREATE, {"month": month})
