"""Tables of an application: exported by closed periods, dropped when it is safe, restored as they were."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow.parquet as pq
import pytest

from holdfast.core.errors import InvalidCursor, InvalidOption, WrongState
from holdfast_archive.errors import (
    ArchiveCorrupted,
    ArchiveNotConfigured,
    ManifestNotFound,
    RestoreConflict,
)
from holdfast_files.errors import FilesUnreachable
from tests.archive.conftest import Place

SEPTEMBER = datetime(2026, 9, 10, tzinfo=UTC)
OCTOBER = datetime(2026, 10, 20, tzinfo=UTC)
NOVEMBER = datetime(2026, 11, 15, tzinfo=UTC)


def _deliveries(place: Place, keep: str | None = "30d") -> None:
    place.archive.table("deliveries", key="id", at="completed_at", keep=keep)
    place.fill(
        [
            (1, "one", SEPTEMBER),
            (2, "two", OCTOBER),
            (3, "three", OCTOBER),
            (4, "four", NOVEMBER),
            (5, "five", None),
        ]
    )


def test_only_closed_periods_are_exported_and_verified(place: Place) -> None:
    _deliveries(place)
    report = place.archive.run()
    assert place.manifests() == [
        ("deliveries/2026-09/0", "verified"),
        ("deliveries/2026-10/0", "verified"),
    ]
    assert (report.periods, report.rows, report.failed) == (2, 3, 0)
    assert len(place.rows()) == 5


def test_a_view_lists_what_was_exported_for_queries_of_people_s_own(place: Place) -> None:
    _deliveries(place)
    place.archive.run()
    asked = "select source, period, part, state, rows, objects, verified_at is not null from #view order by period"
    found = place.execute(
        asked.replace("#view", "holdfast.archive_exports"),
        asked.replace("#view", "holdfast_archive_exports"),
    )
    assert [tuple(row[:5]) for row in found] == [
        ("deliveries", "2026-09", 0, "verified", 1),
        ("deliveries", "2026-10", 0, "verified", 2),
    ]
    assert all(".parquet" in row[5] and row[6] for row in found)


def test_a_second_run_finds_nothing_to_do(place: Place) -> None:
    _deliveries(place)
    place.archive.run()
    before = place.archive.list()
    report = place.archive.run()
    assert (report.periods, report.manifests) == (0, [])
    assert place.archive.list() == before


def test_a_period_is_closed_only_after_its_grace(place: Place) -> None:
    place.archive.table("deliveries", key="id", at="completed_at", grace="2d")
    place.fill([(1, "one", OCTOBER)])
    place.now = datetime(2026, 11, 2, 23, 59, tzinfo=UTC)
    assert place.archive.run().periods == 0
    place.now = datetime(2026, 11, 3, 0, 0, tzinfo=UTC)
    assert place.archive.run().periods == 1


def test_days_follow_the_zone_of_the_source(place: Place) -> None:
    place.archive.table(
        "deliveries", key="id", at="completed_at", period="day", zone="America/Santiago"
    )
    place.fill([(1, "still the 9th there", datetime(2026, 11, 10, 2, 30, tzinfo=UTC))])
    place.archive.run()
    assert place.manifests() == [("deliveries/2026-11-09/0", "verified")]


def test_rows_are_dropped_when_their_time_has_come_and_restored_as_they_were(place: Place) -> None:
    _deliveries(place)
    before = place.rows()
    place.archive.run()
    place.later(days=29)
    place.archive.run()
    assert len(place.rows()) == 5
    place.later(days=2)
    report = place.archive.run()
    assert report.dropped == 3
    assert [each for each in place.manifests() if each[1] == "dropped"] == [
        ("deliveries/2026-09/0", "dropped"),
        ("deliveries/2026-10/0", "dropped"),
    ]
    restored = place.archive.restore("deliveries/2026-10")
    assert (restored.inserted, restored.skipped) == (2, 0)
    place.archive.restore("deliveries/2026-09/0")
    assert place.rows() == before


def test_restored_rows_stay_for_their_time_again(place: Place) -> None:
    _deliveries(place)
    place.archive.run()
    place.later(days=31)
    place.archive.run()
    found = place.archive.restore("deliveries/2026-10").manifest
    assert found.state == "verified"
    place.archive.run()
    assert len(place.rows()) == 4
    place.later(days=31)
    place.archive.run()
    assert place.archive.show("deliveries/2026-10").state == "dropped"


def test_without_a_time_to_keep_nothing_is_dropped(place: Place) -> None:
    _deliveries(place, keep=None)
    place.archive.run()
    place.later(days=3_000)
    place.archive.run("deliveries")
    assert len(place.rows()) == 5


def test_restoring_what_is_there_inserts_nothing(place: Place) -> None:
    _deliveries(place)
    place.archive.run()
    restored = place.archive.restore("deliveries/2026-10")
    assert (restored.inserted, restored.skipped) == (0, 2)


def test_a_restore_never_overwrites_a_row(place: Place) -> None:
    _deliveries(place)
    place.archive.run()
    place.execute("delete from deliveries where id = 3")
    place.execute("update deliveries set note = 'other' where id = 2")
    with pytest.raises(RestoreConflict, match="id=2"):
        place.archive.restore("deliveries/2026-10")
    assert len(place.rows()) == 4


def test_rows_can_be_restored_into_another_table(place: Place) -> None:
    _deliveries(place)
    place.archive.run()
    place.execute(
        "create table looked_at (id bigint primary key, note text, completed_at timestamptz)",
        "create table looked_at (id integer primary key, note text, completed_at integer)",
    )
    restored = place.archive.restore("deliveries/2026-10", into="looked_at")
    assert (restored.inserted, restored.manifest.restored_at) == (2, None)
    assert len(place.rows("looked_at")) == 2


def test_what_was_not_exported_is_not_restored_and_the_next_run_exports_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise FilesUnreachable("the disk is full")

    _deliveries(place)
    with monkeypatch.context() as patches:
        patches.setattr(place.archive.files, "put", refuse)
        assert place.archive.run().failed
    with pytest.raises(WrongState, match="the disk is full"):
        place.archive.restore("deliveries/2026-10")
    assert place.archive.run().failed == 0
    assert place.archive.show("deliveries/2026-10").state == "verified"


def test_a_manifest_that_failed_is_restored_only_into_another_table(place: Place) -> None:
    _deliveries(place)
    place.archive.run()
    place.execute(
        "update holdfast.archive_manifest set state = 'failed'",
        "update holdfast_archive_manifest set state = 'failed'",
    )
    with pytest.raises(WrongState, match="failed"):
        place.archive.restore("deliveries/2026-10")
    place.execute(
        "create table looked_at (id bigint primary key, note text, completed_at timestamptz)",
        "create table looked_at (id integer primary key, note text, completed_at integer)",
    )
    assert place.archive.restore("deliveries/2026-10", into="looked_at").inserted == 2


def test_rows_are_not_restored_into_a_table_without_a_name(place: Place) -> None:
    _deliveries(place)
    place.archive.run()
    with pytest.raises(InvalidOption, match="has no name"):
        place.archive.restore("deliveries/2026-10", into="")


def test_late_rows_get_a_part_of_their_own_before_the_first_is_dropped(place: Place) -> None:
    _deliveries(place)
    place.archive.run()
    place.fill([(9, "late", OCTOBER)])
    place.archive.run()
    late = place.archive.show("deliveries/2026-10/1")
    assert (late.state, late.rows) == ("verified", 1)
    place.later(days=31)
    place.archive.run()
    assert len(place.rows()) == 2
    for name in ("deliveries/2026-10/0", "deliveries/2026-10/1", "deliveries/2026-09/0"):
        place.archive.restore(name)
    assert len(place.rows()) == 6


def test_changed_rows_are_not_dropped_and_are_exported_again(place: Place) -> None:
    _deliveries(place)
    place.archive.run()
    place.execute("update deliveries set note = 'changed' where id = 2")
    place.later(days=31)
    report = place.archive.run()
    assert report.dropped == 2
    assert place.execute("select id, note from deliveries where id = 2") == [(2, "changed")]
    again = place.archive.show("deliveries/2026-10/1")
    assert (again.state, again.rows) == ("verified", 1)
    place.later(days=31)
    place.archive.run()
    assert place.execute("select id from deliveries where id = 2") == []


@pytest.mark.parametrize("damage", ["missing", "corrupted", "half", "swapped"])
def test_a_damaged_object_stops_the_drop_and_is_exported_again(place: Place, damage: str) -> None:
    _deliveries(place)
    before = place.rows()
    place.archive.run()
    manifest = place.archive.show("deliveries/2026-10")
    path = place.object_path(manifest)
    content = path.read_bytes()
    match damage:
        case "missing":
            path.unlink()
        case "corrupted":
            path.write_bytes(content[:100] + b"\x00\x01" + content[102:])
        case "half":
            path.write_bytes(content[: len(content) // 2])
        case _:
            path.write_bytes(
                place.object_path(place.archive.show("deliveries/2026-09")).read_bytes()
            )
    place.later(days=31)
    report = place.archive.run(limit=2)
    assert report.failed == 1
    assert (
        sum("2026, 10" in row or "2026-10" in row for row in place.rows()) == 2 or place.is_sqlite
    )
    assert place.archive.show("deliveries/2026-10").state == "failed"
    place.archive.run()
    found = place.archive.verify("deliveries/2026-10")
    assert (found.state, path.read_bytes()) == ("verified", content)
    assert [each for each in before if each in place.rows()] == [
        each for each in before if each not in _restored(place)
    ]


def _restored(place: Place) -> list[str]:
    """Return the rows that only the archive of September has."""
    before = place.rows()
    place.archive.restore("deliveries/2026-09")
    return [each for each in place.rows() if each not in before]


def test_verify_finds_a_damaged_object_of_dropped_rows(place: Place) -> None:
    _deliveries(place)
    place.archive.run()
    place.later(days=31)
    place.archive.run()
    place.object_path(place.archive.show("deliveries/2026-10")).write_bytes(b"nothing")
    with pytest.raises(ArchiveCorrupted):
        place.archive.verify("deliveries/2026-10")
    found = place.archive.show("deliveries/2026-10")
    assert found.state == "dropped"
    assert "HF111" in str(found.error)
    with pytest.raises(ArchiveCorrupted):
        place.archive.restore("deliveries/2026-10")
    assert len(place.rows()) == 2


def test_the_same_rows_have_the_same_key(place: Place) -> None:
    _deliveries(place)
    place.archive.run()
    first = place.archive.show("deliveries/2026-10")
    place.execute(
        "update holdfast.archive_manifest set state = 'failed'",
        "update holdfast_archive_manifest set state = 'failed'",
    )
    place.archive.run()
    assert place.archive.show("deliveries/2026-10").objects == first.objects


def test_files_are_compressed_with_zstd(place: Place) -> None:
    _deliveries(place)
    place.archive.run()
    path = place.object_path(place.archive.show("deliveries/2026-10"))
    group = pq.read_metadata(path).row_group(0)
    assert [group.column(each).compression for each in range(3)] == ["ZSTD"] * 3


def test_without_files_a_run_does_nothing_and_says_so(place: Place) -> None:
    from holdfast_archive import Archive

    archive = Archive(lambda: place.app.database)
    archive.table("deliveries", key="id", at="completed_at")
    report = archive.run()
    assert not report.configured
    assert "HOLDFAST_ARCHIVE" in str(report.note)
    _deliveries(place)
    place.archive.run()
    with pytest.raises(ArchiveNotConfigured):
        archive.verify("deliveries/2026-10")


def test_names_that_mean_nothing_are_refused(place: Place) -> None:
    for name in ("deliveries", "deliveries/2026-10", "x/2026-10/y", place.app.new_id().hex):
        with pytest.raises(ManifestNotFound):
            place.archive.show(name)
    with pytest.raises(InvalidOption):
        place.archive.run("deliveries")


def test_a_part_that_no_manifest_can_have_is_not_found(place: Place) -> None:
    for part in ("2147483648", "9" * 20):
        with pytest.raises(ManifestNotFound):
            place.archive.show(f"deliveries/2026-10/{part}")


@pytest.mark.parametrize(
    ("key", "at", "words"),
    [
        ("note", "completed_at", "does not identify"),
        ("missing", "completed_at", "no column missing"),
        ("id", "missing", "no column missing"),
    ],
)
def test_a_declaration_that_does_not_fit_the_table_fails_with_the_reason(
    place: Place, key: str, at: str, words: str
) -> None:
    place.archive.table("deliveries", key=key, at=at)
    place.fill([(1, "one", OCTOBER)])
    report = place.archive.run()
    assert report.failed == 1
    assert words in report.errors[0]
    assert len(place.rows()) == 1


def test_the_list_is_read_page_by_page_and_refuses_what_is_no_page(place: Place) -> None:
    _deliveries(place)
    place.archive.run()
    (newest,) = place.archive.list(limit=1)
    (older,) = place.archive.list(limit=10, after=newest.id)
    assert (newest.period, older.period) == ("2026-10", "2026-09")
    with pytest.raises(InvalidOption):
        place.archive.list(limit=-1)
    with pytest.raises(InvalidCursor):
        place.archive.list(after="deliveries/2026-10")
