"""Old rows leave their tables for the archive's, and those for files, by the commands that an operator has."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from apps.harness.books import open_books
from apps.tenders.tests.conftest import run_command
from sqlalchemy import Engine, func, select, table

from tenders.archiving import archive_table
from tenders.models import Delivery, Tender
from tenders.settings import read_settings

APPLICATION = "tenders.worker:jobs"
CYCLES = "cleanup,archiveExport"


class Operator:
    """Runs cycles by hand, and counts rows."""

    def __init__(self, place: Path, url: str, engine: Engine) -> None:
        self.place = place
        self.url = url
        self.engine = engine
        self.bucket = place / "bucket"

    async def run(self, *cycles: str, bucket: str | None = None) -> dict[str, dict[str, Any]]:
        """Have cycles run now, once each; return the latest run of each."""
        settings = {
            "ARCHIVE_BUCKET": str(self.bucket) if bucket is None else bucket,
            "ARCHIVE_KEEP": "1ms",
            "HOLDFAST_ARCHIVE": "",
        }
        for command in (
            *(("cycles", "run-now", cycle, "--yes") for cycle in cycles),
            ("tick", APPLICATION, "--runners", ",".join(cycles)),
        ):
            code, _, err = await run_command(self.place, self.url, "holdfast", *command, **settings)
            assert code == 0, err
        return {cycle: await self.latest_run(cycle) for cycle in cycles}

    async def latest_run(self, cycle: str) -> dict[str, Any]:
        """Return the newest run of a cycle."""
        command = ("holdfast", "cycles", "runs", cycle, "--limit", "1", "-o", "json")
        code, out, err = await run_command(self.place, self.url, *command)
        assert code == 0, err
        found: dict[str, Any] = json.loads(out)[0]
        return found

    def count(self, *wanted: Any, of: str) -> int:
        """Count the rows of a table, or of the archive's copy of it."""
        schema, _, name = of.rpartition(".")
        rows = select(func.count()).where(*wanted)
        if not wanted:
            rows = rows.select_from(table(name, schema=schema or None))
        with self.engine.connect() as connection:
            return connection.execute(rows).scalar_one()

    def archived(self, name: str) -> int:
        """Count what is in the archive's table."""
        return self.count(of=archive_table(self.url, name))


@pytest.fixture
async def operator(url: str, tmp_path: Path) -> Any:
    """An operator of the application with the history of its seed."""
    for command in (
        ("tenders", "seed", "--devices", "60"),
        ("holdfast", "tick", APPLICATION, "--runners", CYCLES),
    ):
        code, _, err = await run_command(tmp_path, url, *command)
        assert code == 0, err
    engine = open_books(url)
    yield Operator(tmp_path, url, engine)
    engine.dispose()


def old_tenders() -> Any:
    """Return the condition for tenders that are older than twelve months."""
    return Tender.published_at < datetime.now(UTC) - timedelta(days=367)


def old_deliveries() -> Any:
    """Return the condition for deliveries that were completed more than ninety days ago."""
    return Delivery.completed_at < datetime.now(UTC) - timedelta(days=90)


async def test_what_is_old_moves_to_the_archive_and_what_is_not_stays(operator: Operator) -> None:
    tenders = operator.count(old_tenders(), of="tenders")
    deliveries = operator.count(old_deliveries(), of="notification_deliveries")
    all_tenders = operator.count(of="tenders")
    all_deliveries = operator.count(of="notification_deliveries")
    assert 0 < tenders < all_tenders
    assert 0 < deliveries < all_deliveries
    run = (await operator.run("cleanup"))["cleanup"]
    assert run["outcome"] == "completed"
    counted = run["counters"]
    assert operator.archived("tenders") == counted["moved_tenders"] == tenders
    assert operator.archived("notification_deliveries") == deliveries
    assert counted["moved_notification_deliveries"] == deliveries
    assert operator.count(of="tenders") == all_tenders - tenders
    assert operator.count(of="notification_deliveries") == all_deliveries - deliveries
    again = (await operator.run("cleanup"))["cleanup"]
    assert again["counters"]["moved"] == 0


async def test_closed_months_become_verified_files_and_only_then_leave_the_database(
    operator: Operator,
) -> None:
    await operator.run("cleanup")
    rows = operator.archived("tenders") + operator.archived("notification_deliveries")
    first = (await operator.run("archiveExport"))["archiveExport"]
    assert first["counters"]["rows"] == rows
    files = sorted(operator.bucket.rglob("*.parquet"))
    assert len(files) == first["counters"]["periods"] > 3
    if first["counters"]["dropped"] == 0:
        assert operator.archived("tenders") > 0
    await operator.run("archiveExport")
    assert operator.archived("tenders") == operator.archived("notification_deliveries") == 0
    command = ("holdfast", "archive", "list", "-o", "json")
    code, out, err = await run_command(
        operator.place, operator.url, *command, HOLDFAST_ARCHIVE=str(operator.bucket)
    )
    assert code == 0, err
    assert {each["state"] for each in json.loads(out)} == {"dropped"}


async def test_without_a_bucket_nothing_is_exported_and_the_run_says_so(operator: Operator) -> None:
    await operator.run("cleanup")
    before = operator.archived("tenders")
    run = (await operator.run("archiveExport", bucket=""))["archiveExport"]
    assert run["outcome"] == "completed"
    assert run["counters"].get("rows", 0) == 0
    assert operator.archived("tenders") == before > 0


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, None),
        ({"ARCHIVE_BUCKET": "./old"}, "./old"),
        ({"ARCHIVE_BUCKET": "old"}, "s3://old"),
        ({"ARCHIVE_BUCKET": "old", "ARCHIVE_REGION": "sa-east-1"}, "s3://old?region=sa-east-1"),
        (
            {"ARCHIVE_BUCKET": "old", "ARCHIVE_ENDPOINT": "http://127.0.0.1:9000"},
            "s3://old?endpoint=http%3A%2F%2F127.0.0.1%3A9000&allow_http=true",
        ),
    ],
)
def test_bucket_region_and_endpoint_become_an_address(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], url: str | None
) -> None:
    for name in ("ARCHIVE_BUCKET", "ARCHIVE_REGION", "ARCHIVE_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert read_settings().archive_url == url
