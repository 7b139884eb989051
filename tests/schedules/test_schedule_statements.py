"""What each statement about schedules reads and changes; those of a context see no schedule outside of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.storage.operation import Op, run
from holdfast.storage.store.params import fetch, fetch_column
from holdfast_schedules.schedule_store import (
    SCHEDULES,
    DecidedSlot,
    Head,
    MovedSchedule,
    NewSchedule,
    ScheduleRecord,
    ScheduleTotals,
    SlotRecord,
)
from tests.support.tables import IMPATIENT, Row, Tables, id_of, is_locked, one, row_lock

NOW = 1_800_000_000_000_000
SECOND = 1_000_000
ACME, GLOBEX, USER = '{"tenant":"acme"}', '{"tenant":"globex"}', '{"user":"acme"}'
IN_ACME = {"context_name": "tenant", "context_value": "acme"}
WITHIN = pytest.mark.parametrize("within", [False, True], ids=["all", "within"])
"""Statements that have a second text for callers who are confined to a context."""


def schedule(name: str, **values: Any) -> Row:
    """A schedule of acme with a value in each of its columns."""
    usual = {
        "name": name, "type": "report", "input": "{}", "schedule": "every 1h", "zone": "UTC", "missed": "all",
        "overlap": "skip", "jitter_ms": 5, "priority": 3, "max_attempts": 4, "version": 2, "sealed": True,
        "context": ACME, "next_at": NOW + SECOND,
        "created_at": NOW - 9, "changed_at": NOW - 8, "paused": False, "paused_by": None, "paused_at": None,
        "last_slot": NOW - 7, "last_job": id_of(1), "error": "no",
    }  # fmt: skip
    return usual | values


def slot(name: str, at: int, **values: Any) -> Row:
    usual = {
        "schedule": name, "slot": at, "state": "refused", "requested": True, "job_id": id_of(2), "error": "why",
        "decided_at": NOW,
    }  # fmt: skip
    return usual | values


class Plan:
    """The schedules of a database."""

    def __init__(self, url: str) -> None:
        self.app = Holdfast(url)
        self.tables = Tables(url)

    def plant(self, *rows: Row) -> None:
        self.tables.plant("schedule", *rows)

    def slots(self, *rows: Row) -> None:
        self.tables.plant("schedule_slot", *rows)

    def mislead(self, own: str, other: str) -> None:
        """Have rows in the index of contexts that do not agree with the schedules."""
        rows = [("tenant", "zzz", own), ("user", "acme", own), ("tenant", "acme", other)]
        for name, value, schedule in rows:
            row = {"name": name, "value": value, "schedule": schedule}
            self.tables.plant("schedule_context", row)

    def run(self, op: Op[Any]) -> Any:
        return self.app.database.run(op)

    def ask(self, statement: str, within: bool, **params: Any) -> Op[list[ScheduleRecord]]:
        """Read schedules, those of acme alone if asked."""
        text, more = (f"{statement}_within", IN_ACME) if within else (statement, {})
        return fetch(ScheduleRecord, text, **params, **more, now=NOW)

    def names(self, *args: Any, **params: Any) -> list[str]:
        return [each.name for each in self.run(self.ask(*args, **params))]

    def changes(self, op: Op[Any]) -> tuple[Any, dict[str, Row | None]]:
        """Run an operation; return its answer, and which schedules it changed to what."""
        answer, found = self.tables.changes("schedule", ("name",), lambda: self.run(op))
        return answer, {name: row for (name,), row in found.items()}


@pytest.fixture(params=["postgres", "sqlite"])
def plan(request: pytest.FixtureRequest) -> Iterator[Plan]:
    plan = Plan(request.getfixturevalue(f"{request.param}_url"))
    yield plan
    plan.tables.close()
    plan.app.close()


def record(row: Row) -> ScheduleRecord:
    return msgspec.convert(row | {"now": NOW}, ScheduleRecord)


@WITHIN
@pytest.mark.parametrize("statement", ["schedule_get", "schedule_lock"])
def test_a_schedule_is_read_as_it_is_stored(plan: Plan, statement: str, within: bool) -> None:
    rows = [schedule("a"), schedule("m", paused_by="ana", paused_at=NOW - 6), schedule("z")]
    plan.plant(*rows, schedule("other", context=GLOBEX), schedule("none", context=None))
    plan.plant(schedule("user", context=USER))
    assert plan.run(plan.ask(statement, within, name="m")) == [record(rows[1])]
    for name in ("none", "other", "user"):
        assert plan.names(statement, within, name=name) == ([] if within else [name])


@WITHIN
def test_schedules_are_listed_by_name_prefix_type_and_state(plan: Plan, within: bool) -> None:
    plan.plant(
        schedule("mail-b"),
        schedule("mail-a", paused=True, next_at=1),
        schedule("post", type="bill", next_at=NOW - SECOND - 1),
        schedule("posted", next_at=NOW - SECOND),
        schedule("ma", context=GLOBEX),
    )
    plan.mislead("mail-b", "ma")
    usual = {"after": "", "prefix": None, "type": None, "paused": None, "late_ms": None, "limit": 9}

    def names(**params: Any) -> list[str]:
        return plan.names("schedule_list", within, **usual | params)

    more = [] if within else ["ma"]
    assert names() == [*more, "mail-a", "mail-b", "post", "posted"]
    assert names(after="mail-a") == ["mail-b", "post", "posted"]
    assert names(after="mail-a", limit=2) == ["mail-b", "post"]
    assert names(prefix="mail-") == ["mail-a", "mail-b"]
    assert names(type="bill") == ["post"]
    assert names(paused=True) == ["mail-a"]
    assert names(paused=False) == [*more, "mail-b", "post", "posted"]
    assert names(late_ms=1_000) == ["post"]


@WITHIN
def test_names_that_begin_alike_are_found(plan: Plan, within: bool) -> None:
    plan.plant(schedule("report-b"), schedule("report-a"), schedule("rest"))
    plan.plant(schedule("repair", context=GLOBEX))
    plan.mislead("report-a", "repair")
    text, more = ("schedule_near_within", IN_ACME) if within else ("schedule_near", {})
    found = plan.run(fetch_column(text, name="reports", **more))
    assert found == [*([] if within else ["repair"]), "report-a", "report-b"]
    # Not in their order, in which a table without one would return them.
    plan.plant(*(schedule(f"sum-{number:03}") for number in reversed(range(101))))
    found = plan.run(fetch_column(text, name="summary", **more))
    assert found == [f"sum-{number:03}" for number in range(100)]


def put(plan: Plan, within: bool, new: NewSchedule, at: int = NOW) -> Any:
    text, more = ("schedule_put_within", IN_ACME) if within else ("schedule_put", {})
    fields = msgspec.structs.asdict(new)
    return plan.changes(fetch(ScheduleRecord, text, **fields, **more, next_at=at + 5, now=at))


@WITHIN
def test_a_schedule_is_set_anew_and_keeps_its_next_slot_and_its_state(
    plan: Plan, within: bool
) -> None:
    paused = {"paused": True, "paused_by": "ana", "paused_at": NOW}
    plan.plant(schedule("a"), schedule("m", **paused), schedule("z"))
    plan.plant(schedule("other", context=GLOBEX))
    new = NewSchedule(
        "m", "bill", "[1]", "every 1h", "UTC", "none", "start", 6, 4, None, None, False, '{"tenant":"acme","a":"b"}',
    )  # fmt: skip
    ((told,), found) = put(plan, within, new)
    changed = msgspec.structs.asdict(new) | {"error": None, "changed_at": NOW}
    same = {"name", "schedule", "zone"}
    assert found == {"m": {key: value for key, value in changed.items() if key not in same}}
    assert told == record(schedule("m", **paused) | changed)
    for change in ({"schedule": "every 2h"}, {"zone": "Asia/Tokyo"}):
        plan.changes(put_back(plan))
        _, found = put(plan, within, msgspec.structs.replace(new, **change))
        assert found["m"].items() >= {**change, "next_at": NOW + 5}.items()
    new = msgspec.structs.replace(new, max_attempts=7, version=8)
    _, found = put(plan, within, msgspec.structs.replace(new, name="new"))
    none = dict.fromkeys(("paused_by", "paused_at", "last_slot", "last_job", "error"))
    row = msgspec.structs.asdict(new) | none | {"name": "new", "paused": False, "next_at": NOW + 5}
    assert found == {"new": row | {"created_at": NOW, "changed_at": NOW}}
    theirs = msgspec.structs.replace(new, name="other")
    answer, found = put(plan, within, theirs)
    assert (answer == [], "other" in found) == (within, not within)


def put_back(plan: Plan) -> Op[Any]:
    """Let the schedule be as it was planted, but for what is not compared."""
    back = msgspec.convert(schedule("m"), NewSchedule)
    return fetch(
        ScheduleRecord,
        "schedule_put",
        **msgspec.structs.asdict(back),
        next_at=NOW + SECOND,
        now=NOW,
    )


def pause(name: str, paused: bool) -> Op[bool]:
    given: dict[str, Any] = {"name": name, "paused": paused, "by": "ana"}
    return (yield from one("schedule_pause", **given, next_at=NOW + 5, now=NOW)) != []


def test_a_paused_schedule_goes_on_with_its_next_slot(plan: Plan) -> None:
    plan.plant(schedule("a"), schedule("m"), schedule("z", paused=True, paused_by="bob"))
    paused = {"paused": True, "paused_by": "ana", "paused_at": NOW}
    assert plan.changes(pause("m", True)) == (True, {"m": paused})
    assert plan.changes(pause("m", True)) == (False, {})
    assert plan.changes(pause("z", True)) == (False, {})
    resumed = {"paused": False, "paused_by": None, "paused_at": None, "next_at": NOW + 5}
    assert plan.changes(pause("m", False)) == (True, {"m": resumed})


def test_a_schedule_is_deleted_with_its_slots(plan: Plan) -> None:
    plan.plant(schedule("a"), schedule("m"), schedule("z"))
    plan.slots(slot("a", NOW), slot("m", NOW), slot("m", NOW + 1), slot("z", NOW))
    assert plan.changes(SCHEDULES.delete("m")) == (True, {"m": None})
    assert plan.changes(SCHEDULES.delete("m")) == (False, {})
    assert plan.tables.rows("schedule_slot", "schedule").keys() == {("a",), ("z",)}


def test_the_first_due_time_of_each_type_is_told_unless_all_is_paused(plan: Plan) -> None:
    plan.app.database.migrate()
    plan.plant(
        schedule("a", next_at=NOW + 3),
        schedule("b", next_at=NOW + 2),
        schedule("c", next_at=NOW + 1, paused=True),
        schedule("d", type="bill", next_at=NOW + 9),
        schedule("e", type="card", paused=True),
        schedule("f", type="zoo", next_at=NOW + 8),
        schedule("g", type="a", paused=True),
    )
    assert sorted(plan.run(fetch(Head, "schedule_heads", now=NOW)), key=lambda each: each.type) == [
        Head("bill", NOW + 9, NOW),
        Head("report", NOW + 2, NOW),
        Head("zoo", NOW + 8, NOW),
    ]
    plan.run(plan.app.database.store.schema.pause(True, "ana"))
    assert plan.run(fetch(Head, "schedule_heads", now=NOW)) == []


def test_due_schedules_of_a_type_are_taken_the_longest_due_first(plan: Plan) -> None:
    plan.plant(
        schedule("a", next_at=NOW),
        schedule("b", next_at=NOW - 2),
        schedule("c", next_at=NOW - 1),
        schedule("d", next_at=NOW + 1),
        schedule("e", next_at=NOW, paused=True),
        schedule("f", next_at=NOW, type="bill"),
    )
    assert plan.names("schedule_take", False, type="report", limit=9) == ["b", "c", "a"]
    assert plan.names("schedule_take", False, type="report", limit=2) == ["b", "c"]


def test_a_schedule_moves_to_its_next_slot_with_its_last_job(plan: Plan) -> None:
    plan.plant(*(schedule(name) for name in "abcz"))
    moved = [
        MovedSchedule("a", NOW + 5, NOW + 4, id_of(7), None),
        MovedSchedule("b", NOW + 6, NOW + 3, None, "worse"),
    ]
    assert plan.changes(SCHEDULES.move(moved))[1] == {
        "a": {"next_at": NOW + 5, "last_slot": NOW + 4, "last_job": id_of(7), "error": None},
        "b": {"next_at": NOW + 6, "last_slot": NOW + 3, "error": "worse"},
    }


def test_a_slot_is_decided_once(plan: Plan) -> None:
    plan.slots(slot("m", NOW), slot("z", NOW + 1))
    new = [
        DecidedSlot("m", NOW, "missed", False, None, None),
        DecidedSlot("m", NOW + 1, "refused", True, id_of(2), "why"),
    ]
    rows = msgspec.json.encode(new).decode()
    found, changed = plan.tables.changes(
        "schedule_slot",
        ("schedule", "slot"),
        lambda: plan.run(one("schedule_slot_put", rows=rows, now=NOW + 2)),
    )
    assert [tuple(each) for each in found] == [("m", NOW + 1)]
    assert changed == {("m", NOW + 1): slot("m", NOW + 1, decided_at=NOW + 2)}


@WITHIN
def test_the_latest_slots_of_a_schedule_are_listed_first(plan: Plan, within: bool) -> None:
    plan.plant(schedule("a"), schedule("m"), schedule("z", context=GLOBEX))
    plan.slots(*(slot(name, NOW + n) for name in "amz" for n in (2, 1, 3)))
    text, more = ("schedule_slot_list_within", IN_ACME) if within else ("schedule_slot_list", {})

    def listed(name: str) -> Any:
        return plan.run(fetch(SlotRecord, text, name=name, limit=2, **more))

    assert [each.slot for each in listed("m")] == [NOW + 3, NOW + 2]
    assert listed("m")[0] == msgspec.convert(slot("m", NOW + 3), SlotRecord)
    assert len(listed("z")) == (0 if within else 2)


def test_old_slots_are_removed_the_oldest_first(plan: Plan) -> None:
    plan.slots(*(slot("m", NOW + n, decided_at=NOW - n * SECOND) for n in range(5)))
    plan.slots(slot("z", NOW + 4))
    trim: dict[str, Any] = {"keep_ms": 1_000, "now": NOW}

    def left() -> list[int]:
        rows = plan.tables.rows("schedule_slot", "schedule", "slot")
        return sorted(at - NOW for name, at in rows if name == "m")

    assert len(plan.run(one("schedule_slot_trim", **trim, limit=2))) == 2
    assert left() == [0, 1, 2]
    assert len(plan.run(one("schedule_slot_trim", **trim, limit=9))) == 1
    assert left() == [0, 1]
    assert ("z", NOW + 4) in plan.tables.rows("schedule_slot", "schedule", "slot")


@WITHIN
def test_schedules_are_counted_by_type(plan: Plan, within: bool) -> None:
    plan.plant(
        schedule("a", next_at=NOW - SECOND - 1),
        schedule("b", next_at=NOW - SECOND, error=None),
        schedule("c", next_at=1, paused=True),
        schedule("f", next_at=1, paused=True, error=None),
        schedule("d", type="bill", paused=True, error=None),
        schedule("e", context=GLOBEX, next_at=NOW),
    )
    plan.mislead("a", "e")
    text, more = ("schedule_totals_within", IN_ACME) if within else ("schedule_totals", {})
    first = NOW - SECOND - 1
    assert plan.run(fetch(ScheduleTotals, text, late_ms=1_000, now=NOW, **more)) == [
        ScheduleTotals("bill", 1, 1, 0, 0, None, NOW),
        ScheduleTotals("report", *((4, 2, 1, 2) if within else (5, 2, 1, 3)), first, NOW),
    ]


@pytest.fixture
def impatient(postgres_url: str) -> Iterator[Plan]:
    """Schedules of PostgreSQL, for whom no lock is waited."""
    plan = Plan(f"{postgres_url}{IMPATIENT}")
    yield plan
    plan.tables.close()
    plan.app.close()


def test_schedules_and_slots_that_others_have_locked_are_left_to_them(
    impatient: Plan, postgres_url: str
) -> None:
    plan = impatient
    plan.plant(schedule("a", next_at=NOW), schedule("b", next_at=NOW))
    with row_lock(postgres_url, "schedule", name="a"):
        assert plan.names("schedule_take", False, type="report", limit=9) == ["b"]
    plan.slots(slot("a", NOW, decided_at=NOW - 1), slot("b", NOW, decided_at=NOW - 1))
    with row_lock(postgres_url, "schedule_slot", schedule="a"):
        trimmed = plan.run(one("schedule_slot_trim", keep_ms=0, limit=9, now=NOW))
        assert len(trimmed) == 1
    assert plan.tables.rows("schedule_slot", "schedule").keys() == {("a",)}


@WITHIN
@pytest.mark.parametrize("statement", ["schedule_lock", "schedule_take"])
def test_a_schedule_that_is_read_to_be_changed_is_locked_until_the_end(
    impatient: Plan, postgres_url: str, statement: str, within: bool
) -> None:
    plan = impatient
    plan.plant(schedule("a", next_at=NOW))
    within = within and statement == "schedule_lock"
    given = {"name": "a"} if statement == "schedule_lock" else {"type": "report", "limit": 1}
    with plan.app.database.transaction() as tx:
        assert run(plan.ask(statement, within, **given), tx)
        assert is_locked(postgres_url, "schedule", name="a")
    assert not is_locked(postgres_url, "schedule", name="a")
