"""The archive as its users run it: a cycle of real commands, a bucket, metrics, and what doctor says."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from holdfast.core.events import Event
from holdfast_archive.doctor import check_archive
from holdfast_files import open_files
from tests.archive.conftest import Place, place_at
from tests.archive.test_tables import OCTOBER, SEPTEMBER
from tests.files.conftest import running_s3, s3  # noqa: F401  fixtures
from tests.files.s3_server import S3Server
from tests.support.warm_python import LIBRARIES

APP = """
from holdfast import Holdfast
from holdfast_archive import add_archive

app = Holdfast()
archive = add_archive(app)
archive.table("deliveries", key="id", at="completed_at")
"""


class Heard:
    """An observer that keeps what it hears."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def wants(self, name: str) -> bool:
        """See `core.events.Observer`."""
        return True

    def observe(self, event: Event) -> None:
        """See `core.events.Observer`."""
        self.events.append(event)


def _holdfast(folder: Path, *command: str, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder), **variables}
    done = LIBRARIES.run(["-m", "holdfast", *command], folder, environment, joined=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_tick_runs_the_archive_and_counts_what_it_did(place: Place, tmp_path: Path) -> None:
    place.fill([(1, "one", SEPTEMBER), (2, "two", OCTOBER)])
    (tmp_path / "shop.py").write_text(APP)
    env = {"HOLDFAST_URL": place.url, "HOLDFAST_ARCHIVE": str(place.root)}
    _holdfast(tmp_path, "tick", "shop:app", "--runners", "archiveExport", **env)
    _holdfast(tmp_path, "cycles", "run-now", "archiveExport", "--yes", **env)
    _holdfast(tmp_path, "tick", "shop:app", "--runners", "archiveExport", **env)
    assert [state for _, state in place.manifests()] == ["verified", "verified"]
    (run, *_) = place.app.cycles.runs("archiveExport")
    assert (run.outcome, run.counters["periods"], run.counters["rows"]) == ("completed", 2, 2)


def test_without_a_bucket_the_cycle_says_that_it_does_nothing(place: Place, tmp_path: Path) -> None:
    place.fill([(1, "one", OCTOBER)])
    (tmp_path / "shop.py").write_text(APP)
    env = {"HOLDFAST_URL": place.url}
    _holdfast(tmp_path, "tick", "shop:app", "--runners", "archiveExport", **env)
    _holdfast(tmp_path, "cycles", "run-now", "archiveExport", "--yes", **env)
    output = _holdfast(tmp_path, "tick", "shop:app", "--runners", "archiveExport", **env)
    assert "HOLDFAST_ARCHIVE is not set" in output
    (run, *_) = place.app.cycles.runs("archiveExport")
    assert (run.outcome, run.counters["skipped"]) == ("completed", 1)


def test_a_bucket_holds_the_archive(
    sqlite_url: str,
    tmp_path: Path,
    s3: S3Server,  # noqa: F811
) -> None:
    place = place_at(sqlite_url, tmp_path)
    place.archive._given = open_files(s3.url(place.app.new_id().hex))
    place.archive.table("deliveries", key="id", at="completed_at", keep="1d")
    place.fill([(n, f"note {n}", OCTOBER) for n in range(20)])
    before = place.rows()
    assert place.archive.run().errors == []
    place.later(days=2)
    assert place.archive.run().dropped == 20
    place.archive.restore("deliveries/2026-10")
    assert place.rows() == before
    key = place.archive.show("deliveries/2026-10").objects[0].key
    place.archive.files.put(key, b"something else")
    place.later(days=2)
    assert place.archive.run().failed == 1
    assert place.rows() == before
    place.app.close()


def test_events_say_what_was_archived_and_what_failed(place: Place) -> None:
    heard = Heard()
    place.archive._observer = lambda: heard
    place.archive.table("deliveries", key="id", at="completed_at", keep="1d")
    place.fill([(1, "one", OCTOBER)])
    place.archive.run()
    place.later(days=2)
    place.archive.run()
    place.archive.restore("deliveries/2026-10")
    place.object_path(place.archive.show("deliveries/2026-10")).unlink()
    place.later(days=2)
    place.archive.run()
    assert [each.name for each in heard.events] == [
        "archive_exported",
        "archive_dropped",
        "archive_restored",
        "archive_failed",
        "archive_exported",
    ]
    assert heard.events[0].fields["rows"] == 1


@pytest.mark.parametrize("state", ["verified", "failed"])
async def test_doctor_shows_manifests_that_failed(place: Place, state: str) -> None:
    store, database = place.app.database.store, place.app.database
    assert database.read(check_archive(store)) == []
    place.archive.table("deliveries", key="id", at="completed_at")
    place.fill([(1, "one", OCTOBER)])
    await asyncio.to_thread(place.archive.run)
    if state == "failed":
        place.execute(
            "update holdfast.archive_manifest set state = 'failed', error = 'x'",
            "update holdfast_archive_manifest set state = 'failed', error = 'x'",
        )
    removal, found = database.read(check_archive(store))
    assert "retention removes" in removal.measured
    assert found.verdict == ("ok" if state == "verified" else "problem")
