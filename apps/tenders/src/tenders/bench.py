"""How fast tenders are matched to devices, and in how much memory: `python -m tenders bench`."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from holdfast.contrib.sqlalchemy_url import open_async_engine
from tenders.database import Session, migrate_tables
from tenders.generated import generate_device, generate_tender
from tenders.ingest import store_tender
from tenders.partitions import create_months

WRITTEN_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured."""

    tenders: int
    devices: int
    deliveries: int
    seconds: float
    idle_mib: float
    peak_mib: float

    def __str__(self) -> str:
        """The figures as people read them."""
        pairs = self.tenders * self.devices
        return (
            f"{self.tenders:,} tenders × {self.devices:,} devices matched in {self.seconds:.1f} s: "
            f"{self.tenders / self.seconds:,.0f} tenders/s, {pairs / self.seconds:,.0f} pairs/s, "
            f"{self.deliveries:,} deliveries; "
            f"peak memory {self.peak_mib:.0f} MiB, {self.peak_mib - self.idle_mib:.0f} above idle"
        )


async def measure(url: str, tenders: int, devices: int) -> Figures:
    """Match in an empty database: each tender in a transaction with its event and deliveries, without their jobs."""
    migrate_tables(url)
    engine = open_async_engine(url)
    Session.configure(bind=engine)
    now = datetime.now(UTC)
    async with Session.begin() as session:
        await create_months(session, [now])
    for start in range(0, devices, WRITTEN_AT_ONCE):
        async with Session.begin() as session:
            new = [
                generate_device(each) for each in range(devices)[start : start + WRITTEN_AT_ONCE]
            ]
            session.add_all([each.installation for each in new])
            await session.flush()
            session.add_all([each.preference for each in new])
    idle, started, deliveries = _peak_mib(), time.perf_counter(), 0
    for number in range(tenders):
        async with Session.begin() as session:
            stored = await store_tender(session, generate_tender(number, now), now)
            deliveries += len(stored or ())
    seconds = time.perf_counter() - started
    await engine.dispose()
    return Figures(tenders, devices, deliveries, seconds, idle, _peak_mib())


def _peak_mib() -> float:
    """Return the most memory that this process has had."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
