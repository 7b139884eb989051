"""An archive that is killed at any step loses nothing and leaves nothing wrong; two at once do the work once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import pytest

from holdfast.core.errors import Aborted
from holdfast.core.instants import to_instant
from holdfast_archive import Archive, Progress
from holdfast_archive.errors import ArchiveBusy
from holdfast_archive.manifest_store import ARCHIVING
from tests.archive.conftest import Place
from tests.archive.crashing import Crash, archive_of
from tests.support.forking import Forker

ROOT = Path(__file__).parents[2]
OCTOBER = datetime(2026, 10, 20, tzinfo=UTC)
MANY = 2_500
"""Rows: more than one step of a drop."""

_FILL = (
    "insert into deliveries select n, 'note ' || n, timestamptz '2026-10-20' from generate_series(1, {0}) n",
    "with recursive c(n) as (select 1 union all select n + 1 from c where n < {0})"
    " insert into deliveries select n, 'note ' || n, 1792454400000000 from c",
)


def _fill(place: Place) -> None:
    place.execute(*(each.format(MANY) for each in _FILL))


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    """What forks the processes that die."""
    forker = Forker("tests.archive.crashing", ROOT)
    yield forker
    forker.close()


def _has_died(forker: Forker, place: Place, act: str, limit: int) -> tuple[bool, list[str]]:
    """Let a process do its work or die; return whether it died, and the steps it reported."""
    log = place.root.with_name("steps")
    crash = Crash(place.url, str(place.root), place.now, act, limit, str(log))
    return asyncio.run(forker.dies(crash)), log.read_text().splitlines()


def _archive(place: Place) -> Archive:
    """Return the archive as a process sees it after the dead one's lease has expired."""
    place.later(seconds=2)
    return archive_of(place.app, place.root, place.now)


@pytest.mark.parametrize(
    ("limit", "state"), [*enumerate([*["exporting"] * 4, "exported", "verified"], 1)]
)
def test_an_export_that_is_killed_at_any_step_is_taken_over(
    place: Place, forker: Forker, limit: int, state: str
) -> None:
    _fill(place)
    before = place.rows()
    has_died, steps = _has_died(forker, place, "run", limit)
    if not has_died:
        assert len([each for each in steps if each in ("export", "upload", "verify")]) < limit
    assert place.manifests() == [("deliveries/2026-10/0", state)]
    archive = _archive(place)
    archive.run()
    found = archive.verify("deliveries/2026-10")
    assert (found.state, found.rows, found.part) == ("verified", MANY, 0)
    assert [each.key for each in place.files.list("deliveries")] == [found.objects[0].key]
    assert place.rows() == before


def test_an_export_that_is_stopped_is_pending_until_the_next_run(place: Place) -> None:
    _fill(place)
    archive = archive_of(place.app, place.root, place.now)
    with pytest.raises(Aborted):
        archive.run(should_stop=lambda: True)
    found = archive.show("deliveries/2026-10")
    assert (found.state, found.error, found.objects) == ("pending", None, [])
    assert list(place.files.list("deliveries")) == []
    archive.run()
    assert place.manifests() == [("deliveries/2026-10/0", "verified")]


@pytest.mark.parametrize("limit", range(1, 7))
def test_a_drop_that_is_killed_at_any_step_is_continued(
    place: Place, forker: Forker, limit: int
) -> None:
    _fill(place)
    before = place.rows()
    _archive(place).run()
    place.later(days=2)
    _has_died(forker, place, "run", limit)
    archive = _archive(place)
    archive.run()
    found = archive.show("deliveries/2026-10")
    assert (found.state, found.dropped) == ("dropped", MANY)
    assert place.rows() == []
    archive.restore("deliveries/2026-10")
    assert place.rows() == before


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_a_restore_that_is_killed_restores_nothing_and_can_be_repeated(
    place: Place, forker: Forker, limit: int
) -> None:
    _fill(place)
    before = place.rows()
    _archive(place).run()
    place.later(days=2)
    _archive(place).run()
    assert _has_died(forker, place, "deliveries/2026-10", limit)[0]
    assert place.rows() == []
    assert _archive(place).restore("deliveries/2026-10").inserted == MANY
    assert place.rows() == before


def test_the_folder_of_a_killed_process_is_removed_by_the_next_run(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    script = (
        "import time\n"
        "from holdfast_archive.work import temporary_folder\n"
        "with temporary_folder() as folder:\n"
        "    print(folder, flush=True)\n"
        "    time.sleep(600)\n"
    )
    archive = archive_of(place.app, place.root, place.now)
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        folder = Path(child.stdout.readline().strip())
        os.utime(folder, (0, 0))
        archive.run()
        assert folder.exists(), "its process is alive, however old it is"
        child.kill()
    archive.run()
    assert not folder.exists()


def test_folders_of_processes_of_an_earlier_version_are_removed_after_days(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old, new, other = (
        tmp_path / name for name in ("holdfast-archive-a", "holdfast-archive-b", "c")
    )
    for folder in (old, new, other):
        folder.mkdir()
    for folder in (old, other):
        os.utime(folder, (0, 0))
    archive_of(place.app, place.root, place.now).run()
    assert (old.exists(), new.exists(), other.exists()) == (False, True, True)


def test_two_exporters_at_once_export_a_period_once(place: Place) -> None:
    _fill(place)
    archives = [archive_of(place.app, place.root, place.now) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        reports = list(threads.map(lambda each: each.run(), archives))
    assert sum(each.periods for each in reports) == 1
    assert place.manifests() == [("deliveries/2026-10/0", "verified")]


def test_an_exporter_whose_token_was_replaced_changes_nothing(place: Place) -> None:
    _fill(place)
    stolen = Event()

    def steal(progress: Progress) -> None:
        if progress.step == "upload" and not stolen.is_set():
            stolen.set()
            place.execute(
                "update holdfast.archive_manifest set token = gen_random_uuid(), expires_at = now() + interval '1 h'",
                "update holdfast_archive_manifest set token = 'other', expires_at = 9000000000000000",
            )

    report = archive_of(place.app, place.root, place.now).run(on_progress=steal)
    assert report.failed == 1
    assert "taken over" in report.errors[0]
    assert place.manifests() == [("deliveries/2026-10/0", "exporting")]


def test_a_manifest_in_use_cannot_be_checked_or_restored(place: Place) -> None:
    _fill(place)
    archive_of(place.app, place.root, place.now).run()
    place.later(days=2)
    archive = archive_of(place.app, place.root, place.now)
    manifest = archive.show("deliveries/2026-10")
    now = to_instant(place.now)
    token = str(place.app.new_id())
    hold = ARCHIVING.hold(manifest.id, ["verified"], token, 60_000, now)
    assert place.app.database.run(hold) is not None
    with pytest.raises(ArchiveBusy):
        archive.verify(manifest.id)
    with pytest.raises(ArchiveBusy):
        archive.restore(manifest.id)
    report = archive.run()
    assert (report.failed, report.dropped) == (0, 0)
    place.now += timedelta(minutes=2)
    assert archive_of(place.app, place.root, place.now).verify(manifest.id).state == "verified"
