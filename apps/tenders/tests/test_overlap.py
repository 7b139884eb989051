"""Two workers as processes: ingest, cleanup and archive run on one of them at a time, each slot once."""

import asyncio
import itertools
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from apps.tenders.tests.conftest import environment, run_command
from sqlalchemy import func, select
from sqlalchemy.orm import Session
from tests.support.until import PATIENCE_S, breath

from tenders.generated import generate_tender
from tenders.local.books import open_books
from tenders.local.source_server import SourceFaults, SourceServer
from tenders.models import NotificationEvent, RegisteredCode, Tender

SINGLETONS = ("ingest", "cleanupTenders", "cleanupDeliveries", "archiveExport")
SETTINGS = {
    "WORKER_TICK_RUNNERS": ",".join(SINGLETONS),
    "WORKER_INTERVAL_MINUTES": "1s",
    "CLEANUP_CRON": "* * * * *",
    "ARCHIVE_EXPORT_CRON": "* * * * *",
    "ARCHIVE_KEEP": "1ms",
}


@pytest.fixture
def sources() -> Iterator[SourceServer]:
    """Sources that take longer to answer than ingest waits between its slots."""
    server = SourceServer()
    server.api = server.pages = [generate_tender(each, datetime.now(UTC)) for each in range(40)]
    server.page_faults = SourceFaults(slow_s=0.4)
    yield server
    server.close()


@asynccontextmanager
async def worker(place: Path, url: str, name: str, settings: dict[str, str]) -> AsyncIterator[Any]:
    """Run a worker until the end of the block; kill it if it does not stop."""
    with (place / f"{name}.log").open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            *("holdfast", "worker", "tenders.worker:jobs", "--name", name),
            cwd=place,
            env=environment(url, **settings),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), PATIENCE_S)
            except TimeoutError:
                process.kill()
                await process.wait()


@pytest.mark.timeout(600)
async def test_ingest_cleanup_and_archive_never_overlap_on_two_replicas(
    url: str, tmp_path: Path, sources: SourceServer
) -> None:
    settings = SETTINGS | sources.variables(sources.start())
    settings["ARCHIVE_BUCKET"] = str(tmp_path / "bucket")
    code, _, err = await run_command(tmp_path, url, "tenders", "seed", "--devices", "20")
    assert code == 0, err
    engine = open_books(url)
    async with (
        worker(tmp_path, url, "w-1", settings) as first,
        worker(tmp_path, url, "w-2", settings),
    ):
        await until_runs(tmp_path, url, "ingest", 3)
        first.kill()
        await first.wait()
        async with worker(tmp_path, url, "w-3", settings):
            for cycle in SINGLETONS:
                now = ("holdfast", "cycles", "run-now", cycle, "--yes")
                assert (await run_command(tmp_path, url, *now))[0] == 0
                await until_runs(tmp_path, url, cycle, 5 if cycle == "ingest" else 1)
    for cycle in SINGLETONS:
        recorded = sorted(await runs(tmp_path, url, cycle), key=lambda each: each["started_at"])
        for one, other in itertools.pairwise(recorded):
            assert one["finished_at"] <= other["started_at"], cycle
    with Session(engine) as session:
        for model in (RegisteredCode, NotificationEvent):
            assert session.scalar(select(func.count()).select_from(model)) == 75
        assert session.scalar(select(func.count(Tender.code.distinct()))) == session.scalar(
            select(func.count()).select_from(Tender)
        )
    engine.dispose()


async def runs(place: Path, url: str, cycle: str) -> list[dict[str, Any]]:
    """Return the recorded runs of a cycle that have ended, whichever way."""
    command = ("holdfast", "cycles", "runs", cycle, "--limit", "200", "-o", "json")
    code, out, err = await run_command(place, url, *command)
    if "there is no cycle" in err:  # no worker has started yet
        return []
    assert code == 0, err
    return [each for each in json.loads(out) if each["finished_at"]]


async def until_runs(place: Path, url: str, cycle: str, number: int) -> None:
    """Wait until a cycle has completed that often."""
    async with asyncio.timeout(PATIENCE_S * 3):
        while (
            len([each for each in await runs(place, url, cycle) if each["outcome"] == "completed"])
            < number
        ):
            await breath()
