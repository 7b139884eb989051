"""Cleanup and archive die with -9 before every step, on both stores: no row is lost, each ends in a verified file."""

import hashlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from apps.tenders.tests import pushing as shared
from apps.tenders.tests.conftest import environment
from apps.tenders.tests.dying_archive import HOUR_US
from apps.tenders.tests.pushing import Pushing, add_deliveries, add_tender
from sqlalchemy import Select, TableClause, literal_column, select, table, update
from tests.support.dying import DyingProcesses

from holdfast_archive import Archive
from tenders.database import Session
from tenders.jobs import jobs
from tenders.models import Delivery, DeliveryStatus

pushing = shared.pushing

ROWS = 3
NEVER = 1_000_000


class Rows:
    """The deliveries of a test: where they are, in tables and in files."""

    def __init__(self, url: str, bucket: Path) -> None:
        self.hot = table("notification_deliveries")
        self.old = (
            table("archive_notification_deliveries")
            if url.startswith("sqlite")
            else table("notification_deliveries", schema="archive")
        )
        self._bucket = bucket
        self._known: dict[str, list[int]] = {}
        self.archive = Archive(lambda: jobs.database, str(bucket))

    async def add(self, month: int) -> None:
        """Add deliveries that were completed in a month of their own, years ago."""
        await add_deliveries(await add_tender(f"{month}-1-LE26"), ROWS)
        completed = datetime(2010 + month // 12, month % 12 + 1, 15, tzinfo=UTC)
        async with Session.begin() as session:
            fresh = update(Delivery).where(Delivery.completed_at.is_(None))
            await session.execute(
                fresh.values(completed_at=completed, status=DeliveryStatus.OK, attempt_count=1)
            )

    async def read(self, source: TableClause) -> dict[int, dict[str, Any]]:
        """Return the rows of a table, by id."""
        async with Session() as session:
            everything: Select[Any] = select(literal_column("*")).select_from(source)
            found = (await session.execute(everything)).mappings()
            return {each["id"]: dict(each) for each in found}

    def in_files(self) -> Counter[int]:
        """Count the rows in files that a manifest vouches for, by id."""
        found: Counter[int] = Counter()
        for manifest in self.archive.list("notification_deliveries", limit=1_000):
            if manifest.state in ("verified", "dropped"):
                for each in manifest.objects:
                    content = (self._bucket / each.key).read_bytes()
                    assert hashlib.sha256(content).hexdigest() == each.sha256
                    if each.sha256 not in self._known:
                        self._known[each.sha256] = pq.read_table(BytesIO(content))["id"].to_pylist()
                    found.update(self._known[each.sha256])
        return found


@pytest.fixture
def rows(pushing: Pushing, url: str, tmp_path: Path) -> Rows:
    """The deliveries, and the bucket they go to."""
    return Rows(url, tmp_path / "bucket")


@pytest.fixture
async def mortals(rows: Rows, url: str, tmp_path: Path) -> AsyncIterator[DyingProcesses]:
    """Runs that die, and runs that do not."""
    given = environment(url, ARCHIVE_BUCKET=str(tmp_path / "bucket"), ARCHIVE_KEEP="1s")
    mortals = DyingProcesses("apps.tenders.tests.dying_archive", url, tmp_path / "steps", given)
    yield mortals
    mortals.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("done", "dying", "seen"),
    [
        ("", "cleanup", {"commit", "committed"}),
        ("cleanup", "archive", {"export", "upload", "verify", "run"}),
        ("cleanup archive", "archive", {"drop", "commit", "committed"}),
    ],
    ids=["cleanup", "export", "drop"],
)
async def test_whichever_step_it_dies_at_every_row_is_kept_and_ends_in_a_verified_file(
    rows: Rows, mortals: DyingProcesses, done: str, dying: str, seen: set[str]
) -> None:
    died_at: set[str] = set()
    originals: dict[int, dict[str, Any]] = {}
    clock = itertools.count(0, 10 * HOUR_US)
    for step in itertools.count(1):
        await rows.add(step)
        originals |= await rows.read(rows.hot)
        steps = await mortals.die(f"{done} {dying}", step, next(clock))
        hot, old = await rows.read(rows.hot), await rows.read(rows.old)
        assert not hot.keys() & old.keys()
        assert hot.keys() | old.keys() | rows.in_files().keys() == originals.keys()
        assert await mortals.die("cleanup archive archive", NEVER, next(clock)) is None
        assert rows.in_files() == Counter(dict.fromkeys(originals, 1))
        assert await rows.read(rows.hot) == await rows.read(rows.old) == {}
        if steps is None:
            break
        died_at.add(steps[-1])
    assert died_at >= seen
    for manifest in rows.archive.list("notification_deliveries", limit=1_000):
        rows.archive.restore(manifest.name)
    assert await rows.read(rows.old) == originals
