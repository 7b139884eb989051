"""What each statement about manifests reads and changes: one manifest, in the states that allow it, under its token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.storage.operation import Op
from holdfast_archive.manifest import ArchivedObject, Manifest, ManifestTotals
from holdfast_archive.manifest_store import ARCHIVING, MANIFESTS
from tests.support.tables import Row, Tables, id_of

NOW = 1_800_000_000_000_000
SECOND = 1_000_000
TOKEN, OTHER = id_of(1), id_of(2)
OBJECT = ArchivedObject("deliveries", "deliveries/2026-10/0-ab.parquet", 3, 100, "ab")
OBJECTS = msgspec.json.encode([OBJECT]).decode()
GIVEN_BACK = {"token": None, "expires_at": None}
EVERY_STATE = {"pending", "exporting", "exported", "verified", "dropped", "failed"}


def manifest(number: int, **values: Any) -> Row:
    """A manifest that is held, with a value in each of its columns."""
    usual = {
        "id": id_of(number), "source": "mail", "period": "2026-10", "part": number, "state": "exporting",
        "objects": "[]", "items": 7, "rows": 8, "bytes": 9, "dropped": 2, "definition": "{}",
        "token": TOKEN, "expires_at": NOW + SECOND,
        "error": "no", "created_at": NOW - 9, "changed_at": NOW - 8, "exported_at": NOW - 7, "verified_at": NOW - 6,
        "drop_eligible_at": NOW - 5, "dropped_at": NOW - 4, "restored_at": NOW - 3,
    }  # fmt: skip
    return usual | values


class Shelf:
    """The manifests of a database."""

    def __init__(self, url: str) -> None:
        self.app = Holdfast(url)
        self.tables = Tables(url)

    def plant(self, *rows: Row) -> None:
        self.tables.plant("archive_manifest", *rows)

    def run(self, op: Op[Any]) -> Any:
        return self.app.database.run(op)

    def changes(self, op: Op[Any]) -> tuple[Any, dict[int, Row | None]]:
        """Run an operation; return its answer, and which manifests it changed to what, by their numbers."""
        answer, found = self.tables.changes("archive_manifest", ("id",), lambda: self.run(op))
        return answer, {int(id[-12:]): row for (id,), row in found.items()}

    def numbers(self, op: Op[list[Manifest]]) -> list[int]:
        return [int(each.id[-12:]) for each in self.run(op)]


@pytest.fixture(params=["postgres", "sqlite"])
def shelf(request: pytest.FixtureRequest) -> Iterator[Shelf]:
    shelf = Shelf(request.getfixturevalue(f"{request.param}_url"))
    yield shelf
    shelf.tables.close()
    shelf.app.close()


KEPT = {"drop_eligible_at": NOW + 2 * SECOND, "verified_at": NOW}


@pytest.mark.parametrize(
    ("op", "states", "change"),
    [
        (
            lambda token: ARCHIVING.renew(id_of(5), token, 3_000, NOW),
            EVERY_STATE,
            {"expires_at": NOW + 3 * SECOND},
        ),
        (
            lambda token: ARCHIVING.mark_exported(id_of(5), token, [OBJECT], 4, '{"a":1}', NOW),
            {"exporting"},
            {
                "state": "exported",
                "objects": OBJECTS,
                "items": 4,
                "rows": 3,
                "bytes": 100,
                "definition": '{"a":1}',
                "error": None,
                "exported_at": NOW,
                "verified_at": None,
                "drop_eligible_at": None,
                "changed_at": NOW,
            },
        ),
        (
            lambda token: ARCHIVING.mark_verified(id_of(5), token, 2_000, NOW),
            {"exported"},
            {"state": "verified", "error": None, "changed_at": NOW, **KEPT, **GIVEN_BACK},
        ),
        (
            lambda token: ARCHIVING.count_dropped(id_of(5), token, 3, NOW),
            {"verified"},
            {"dropped": 5, "changed_at": NOW},
        ),
        (
            lambda token: ARCHIVING.mark_dropped(id_of(5), token, NOW),
            {"verified"},
            {"state": "dropped", "error": None, "dropped_at": NOW, "changed_at": NOW, **GIVEN_BACK},
        ),
        (
            lambda token: ARCHIVING.mark_restored(id_of(5), token, 2_000, NOW),
            {"verified", "dropped"},
            {
                "state": "verified",
                "dropped": 0,
                "error": None,
                "restored_at": NOW,
                "dropped_at": None,
                "changed_at": NOW,
                **KEPT,
                **GIVEN_BACK,
            },
        ),
        (
            lambda token: ARCHIVING.release(id_of(5), token, "why", "failed", NOW),
            EVERY_STATE,
            {"state": "failed", "error": "why", "changed_at": NOW, **GIVEN_BACK},
        ),
        (
            lambda token: ARCHIVING.release(id_of(5), token, None, None, NOW),
            EVERY_STATE,
            {"error": None, "changed_at": NOW, **GIVEN_BACK},
        ),
    ],
    ids=["renew", "exported", "verified", "count", "dropped", "restored", "failed", "release"],
)
def test_a_manifest_is_changed_alone_in_the_states_that_allow_it_and_under_its_token(
    shelf: Shelf, op: Callable[[str], Op[bool]], states: set[str], change: Row
) -> None:
    for state in sorted(EVERY_STATE):
        shelf.tables.execute(
            "delete from holdfast.archive_manifest", "delete from holdfast_archive_manifest"
        )
        shelf.plant(*(manifest(number, state=state) for number in (4, 5, 6)))
        assert shelf.changes(op(OTHER)) == (False, {})
        answer, found = shelf.changes(op(TOKEN))
        allowed = {
            name: value for name, value in change.items() if (name, value) != ("state", state)
        }
        assert (answer, found) == ((True, {5: allowed}) if state in states else (False, {})), state


def test_one_that_holds_nothing_is_removed_under_its_token(shelf: Shelf) -> None:
    none = {"rows": 0}
    shelf.plant(manifest(4, **none), manifest(5, **none), manifest(6))
    shelf.plant(manifest(7, **none, state="failed"))
    remove = ARCHIVING.remove_empty
    assert shelf.changes(remove(id_of(5), OTHER)) == (False, {})
    assert shelf.changes(remove(id_of(6), TOKEN)) == (False, {})
    assert shelf.changes(remove(id_of(7), TOKEN)) == (False, {})
    assert shelf.changes(remove(id_of(5), TOKEN)) == (True, {5: None})


def test_an_export_is_begun_or_taken_over_where_nobody_holds_it(shelf: Shelf) -> None:
    ended: dict[str, Any] = {"expires_at": NOW, "dropped": 0}
    shelf.plant(
        manifest(1, dropped=0),
        manifest(2, **ended),
        manifest(3, **ended | {"dropped": 1}),
        manifest(4, dropped=0, **GIVEN_BACK),
        manifest(11, part=2, source="bills", **ended),
        manifest(12, part=2, period="2026-11", **ended),
    )

    def claim(part: int) -> Op[Manifest | None]:
        args = (id_of(9), "mail", "2026-10", part, '{"b":1}', OTHER, 2_000, NOW)
        return ARCHIVING.claim(*args)

    assert shelf.changes(claim(1)) == (None, {})
    assert shelf.changes(claim(3)) == (None, {})
    mine: Row = {"definition": '{"b":1}', "token": OTHER, "expires_at": NOW + 2 * SECOND}
    mine["changed_at"] = NOW
    for part in (2, 4):
        taken, found = shelf.changes(claim(part))
        assert found == {part: mine}
        assert taken.id == id_of(part)
    new, found = shelf.changes(claim(9))
    assert new.name == "mail/2026-10/9"
    usual = dict.fromkeys(manifest(9), None)
    usual |= {"id": id_of(9), "source": "mail", "period": "2026-10", "part": 9, "created_at": NOW}
    usual |= {
        "state": "exporting",
        "objects": "[]",
        "items": 0,
        "rows": 0,
        "bytes": 0,
        "dropped": 0,
    }
    assert found == {9: usual | mine}
    states: dict[str, str | None] = {}
    for number, state in enumerate(sorted(EVERY_STATE), 20):
        shelf.plant(manifest(number, state=state, **ended))
        taken = shelf.run(claim(number))
        states[state] = taken and taken.state
    closed = {"verified", "dropped"}
    assert states == {state: None if state in closed else "exporting" for state in EVERY_STATE}


def test_a_manifest_is_taken_in_some_states_when_nobody_holds_it(shelf: Shelf) -> None:
    shelf.plant(manifest(1), manifest(2, expires_at=NOW), manifest(3, **GIVEN_BACK))
    shelf.plant(manifest(4, expires_at=NOW, state="failed"))

    def hold(number: int) -> Op[Manifest | None]:
        return ARCHIVING.hold(id_of(number), ["exporting", "dropped"], OTHER, 2_000, NOW)

    mine = {"token": OTHER, "expires_at": NOW + 2 * SECOND}
    assert shelf.changes(hold(1)) == (None, {})
    assert shelf.changes(hold(4)) == (None, {})
    for number in (2, 3):
        taken, found = shelf.changes(hold(number))
        assert (taken.id, found) == (id_of(number), {number: mine})


def test_a_manifest_is_read_as_it_is_stored(shelf: Shelf) -> None:
    shelf.plant(manifest(4), manifest(5, objects=OBJECTS), manifest(6))
    expected = msgspec.convert(manifest(5) | {"objects": [OBJECT]}, Manifest, from_attributes=True)
    assert shelf.run(MANIFESTS.get(id_of(5))) == expected
    assert shelf.run(MANIFESTS.get(id_of(7))) is None


def test_manifests_are_found_by_what_they_cover(shelf: Shelf) -> None:
    shelf.plant(
        manifest(2),
        manifest(1),
        manifest(11, part=1, source="bills"),
        manifest(12, part=1, period="2026-09"),
        manifest(13, part=0, source="posts"),
    )
    find = MANIFESTS.find
    assert shelf.run(find("mail", "2026-10", 1)).id == id_of(1)
    assert shelf.run(find("mail", "2026-10", 2)).id == id_of(2)
    assert shelf.run(find("bills", "2026-10", 1)).id == id_of(11)
    assert shelf.run(find("mail", "2026-09", 1)).id == id_of(12)
    assert shelf.numbers(MANIFESTS.parts("mail", "2026-10")) == [1, 2]


def test_the_newest_periods_are_listed_first(shelf: Shelf) -> None:
    shelf.plant(
        manifest(1, part=0),
        manifest(2, part=1, state="failed"),
        manifest(3, source="bills"),
        manifest(4, period="2026-11", source="bills"),
        manifest(5, period="2026-09", source="posts"),
    )
    page = MANIFESTS.page
    assert shelf.numbers(page()) == [4, 2, 1, 3, 5]
    assert shelf.numbers(page(limit=2)) == [4, 2]
    assert shelf.numbers(page(limit=9, after=id_of(2))) == [1, 3, 5]
    assert shelf.numbers(page("mail")) == [2, 1]
    assert shelf.numbers(page(state="failed")) == [2]


def test_verified_ones_may_be_dropped_at_their_time_the_oldest_first(shelf: Shelf) -> None:
    ready: dict[str, Any] = {"state": "verified", "drop_eligible_at": NOW}
    shelf.plant(
        manifest(1, **ready, part=3),
        manifest(2, **ready),
        manifest(3, **ready, period="2026-09", part=9),
        manifest(4, **ready | {"drop_eligible_at": NOW + 1}),
        manifest(5, **ready | {"state": "dropped"}),
        manifest(6, **ready, source="bills"),
    )
    assert shelf.numbers(MANIFESTS.eligible("mail", 9, NOW)) == [3, 2, 1]
    assert shelf.numbers(MANIFESTS.eligible("mail", 2, NOW)) == [3, 2]


def test_those_are_overdue_that_did_not_get_on(shelf: Shelf) -> None:
    late = {"changed_at": NOW - SECOND - 1, "drop_eligible_at": NOW - SECOND - 1}
    not_yet = {"changed_at": NOW - SECOND, "drop_eligible_at": NOW - SECOND}
    shelf.plant(
        manifest(1, **late),
        manifest(2, **not_yet),
        manifest(3, **late, state="verified"),
        manifest(4, **not_yet | {"changed_at": 1}, state="verified"),
        manifest(5, **late, state="dropped"),
        manifest(6, **late | {"drop_eligible_at": NOW}, state="failed", source="bills"),
        manifest(7, **late, period="2026-09"),
        manifest(8, **late | {"drop_eligible_at": None}, state="verified", part=0),
    )
    assert shelf.numbers(MANIFESTS.overdue(1_000, 9, NOW)) == [7, 6, 1, 3]
    assert shelf.numbers(MANIFESTS.overdue(1_000, 2, NOW)) == [7, 6]


def test_manifests_are_summed_up_by_source_and_state(shelf: Shelf) -> None:
    shelf.plant(manifest(1), manifest(2, error=None, items=1, rows=2, bytes=3))
    shelf.plant(manifest(3, state="failed"), manifest(4, source="bills"))
    assert shelf.run(MANIFESTS.totals()) == [
        ManifestTotals("bills", "exporting", 1, 7, 8, 9, 1),
        ManifestTotals("mail", "exporting", 2, 8, 10, 12, 1),
        ManifestTotals("mail", "failed", 1, 7, 8, 9, 1),
    ]


def test_chains_that_came_back_are_counted_as_not_removed(shelf: Shelf) -> None:
    counts: dict[str, str | int] = {"type": "mail", "completed": 5, "failed": 3, "cancelled": 1}
    shelf.run(ARCHIVING.recount([counts], NOW))
    (row,) = shelf.tables.rows("tally", "type").values()
    names = ("at", "type", "started", "completed", "failed", "cancelled", "removed")
    assert [row[name] for name in names] == [NOW, "mail", 0, 5, 3, 1, -9]
