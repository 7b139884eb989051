"""Two workers as processes: ingest, cleanup and archive run on one of them at a time, each slot once."""

import itertools
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from apps.tenders.local.source_server import SourceFaults, SourceServer
from apps.tenders.tests.conftest import running
from sqlalchemy import func, select
from tests.support.application import RunningCommand
from tests.support.until import until

from holdfast import RunInfo
from holdfast_testing.kit import Kit
from tenders.database import Session
from tenders.generated import generate_tender
from tenders.jobs import jobs
from tenders.models import NotificationEvent, RegisteredCode, Tender
from tenders.seed import seed

SINGLETONS = ("ingest", "cleanup", "archiveExport")
SETTINGS = {
    "WORKER_TICK_RUNNERS": ",".join(SINGLETONS),
    "WORKER_INTERVAL_MINUTES": "1s",
    "CLEANUP_CRON": "* * * * *",
    "ARCHIVE_EXPORT_CRON": "* * * * *",
    "ARCHIVE_KEEP": "1ms",
    # A worker that is killed in the middle of a run costs a lease.
    "OUTBOX_LEASE_DURATION_MS": "5000",
}


@pytest.fixture
def sources() -> Iterator[SourceServer]:
    """Sources that take longer to answer than ingest waits between its slots."""
    server = SourceServer()
    server.api = server.pages = [generate_tender(each, datetime.now(UTC)) for each in range(40)]
    server.page_faults = SourceFaults(slow_s=0.4)
    yield server
    server.close()


def worker(
    place: Path, url: str, name: str, settings: dict[str, str]
) -> AbstractAsyncContextManager[RunningCommand]:
    """Run a worker until the end of the block, and ask it to stop unless it was killed."""
    words = ("holdfast", "worker", "tenders.worker:jobs", "--name", name)
    return running(place, url, *words, **settings)


@pytest.mark.timeout(600)
async def test_ingest_cleanup_and_archive_never_overlap_on_two_replicas(
    kit: Kit, url: str, tmp_path: Path, sources: SourceServer
) -> None:
    settings = SETTINGS | sources.variables(sources.start())
    settings["ARCHIVE_BUCKET"] = str(tmp_path / "bucket")
    async with Session.begin() as session:
        await seed(session, datetime.now(UTC), devices=20, tenders=35)
    async with (
        worker(tmp_path, url, "w-1", settings) as first,
        worker(tmp_path, url, "w-2", settings),
    ):
        await until(lambda: completed("ingest") >= 3)
        await first.kill()
        async with worker(tmp_path, url, "w-3", settings):
            await until(lambda: completed("ingest") >= 5)
            for cycle, times in itertools.product(SINGLETONS, (1, 2)):
                with jobs.transaction() as tx:
                    jobs.cycles.run_now(tx, cycle)
                await until(lambda: completed(cycle) >= times)  # noqa: B023
    for cycle in SINGLETONS:
        recorded = sorted(ended(cycle), key=lambda each: each.started_at)
        assert len(recorded) >= 2, cycle
        for one, other in itertools.pairwise(recorded):
            assert one.finished_at is not None
            assert one.finished_at <= other.started_at, cycle
    async with Session() as session:
        for model in (RegisteredCode, NotificationEvent):
            assert await session.scalar(select(func.count()).select_from(model)) == 75
        codes = await session.scalar(select(func.count(Tender.code.distinct())))
        assert codes == await session.scalar(select(func.count()).select_from(Tender))


def ended(cycle: str) -> list[RunInfo]:
    """Return the recorded runs of a cycle that have ended, whichever way."""
    return [each for each in jobs.cycles.runs(cycle, limit=200) if each.finished_at]


def completed(cycle: str) -> int:
    """Count how often a cycle has completed."""
    return sum(each.outcome == "completed" for each in ended(cycle))
