"""Old rows move to another table in bounded steps, and are always in exactly one of the two."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError, InvalidOption
from holdfast.scheduler.cycle_run import CycleRun, FencedTransaction
from holdfast.scheduler.runner import TickSummary
from holdfast.settings import load_settings
from holdfast_archive import move_rows
from holdfast_archive.row_moves import age_before
from tests.archive.conftest import Place

YEAR = timedelta(days=366)


async def _once(place: Place) -> TickSummary:
    tick = place.app.assembly(load_settings()).tick(("cleanup",))
    try:
        return await tick.run()
    finally:
        await tick.close()


async def _tick(place: Place) -> TickSummary:
    """Run the cycle now, as a tick does; the first one makes it known."""
    await _once(place)
    async with place.app.transaction() as tx:
        await place.app.cycles.run_now(tx, "cleanup")
    return await _once(place)


def _fill(place: Place) -> None:
    now = datetime.now(UTC)
    place.fill([(n, f"note {n}", now - YEAR) for n in range(25)])
    place.fill([(100, "new", now), (101, "never", None)])


def _target(place: Place, columns: str = "completed_at timestamptz, note text, id bigint") -> str:
    if place.is_sqlite:
        columns = columns.replace("timestamptz", "integer").replace("bigint", "integer")
        place.execute("", f"create table old_deliveries ({columns})")
        return "old_deliveries"
    place.execute("create schema archive")
    place.execute(f"create table archive.deliveries ({columns})")
    return "archive.deliveries"


async def test_rows_older_than_a_year_move_in_steps(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(place)
    target = _target(place)
    committed = _watch_commits(place, target, monkeypatch)
    move_rows(
        place.app,
        "cleanup",
        source="deliveries",
        target=target,
        at="completed_at",
        older_than="12 months",
        batch=10,
    )
    await _tick(place)
    assert sorted(place.execute(f"select id from {target}")) == [(n,) for n in range(25)]  # noqa: S608
    assert sorted(place.execute("select id from deliveries")) == [(100,), (101,)]
    runs = await place.app.aio.cycles.runs("cleanup")
    assert sum(int(each.counters.get("moved", 0)) for each in runs) == 25
    assert [each for each in committed if each] == [10, 20, 25]


def _watch_commits(place: Place, target: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note after each transaction of a run how many rows others see in the target."""
    seen: list[int] = []

    class Watched(FencedTransaction):
        def __exit__(self, *details: Any) -> bool | None:
            answer = super().__exit__(*details)
            seen.append(len(place.execute(f"select id from {target}")))  # noqa: S608
            return answer

    def transaction(run: CycleRun) -> FencedTransaction:
        return Watched(run._database, run.held)

    monkeypatch.setattr(CycleRun, "transaction", transaction)
    return seen


async def test_one_cycle_may_move_several_tables(place: Place) -> None:
    _fill(place)
    target = _target(place)
    place.execute("create table notes (id bigint primary key, at bigint)")
    place.execute("create table old_notes (id bigint, at bigint)")
    place.execute("insert into notes values (1, 1000), (2, 2000)")
    move_rows(
        place.app,
        "cleanup",
        source="deliveries",
        target=target,
        at="completed_at",
        older_than="90d",
    )
    move_rows(
        place.app, "cleanup", source="notes", target="old_notes", at="at", older_than="1 year"
    )
    await _tick(place)
    (run, *_) = [
        each for each in await place.app.aio.cycles.runs("cleanup") if each.counters.get("moved")
    ]
    counted = run.counters
    assert (counted["moved"], counted["moved_deliveries"], counted["moved_notes"]) == (27, 25, 2)
    with pytest.raises(InvalidOption):
        move_rows(
            place.app,
            "cleanup",
            source="notes",
            target="old_notes",
            at="at",
            older_than="1d",
            every="1h",
        )


async def test_a_condition_and_a_limit_hold(place: Place) -> None:
    _fill(place)
    target = _target(place)
    move_rows(
        place.app,
        "cleanup",
        source="deliveries",
        target=target,
        at="completed_at",
        older_than="90d",
        where="note like 'note 1%'",
        batch=4,
        max_items=6,
        cron="17 3 1 1 *",
    )
    await _tick(place)
    moved = [note for (note,) in place.execute(f"select note from {target}")]  # noqa: S608
    assert len(moved) == 6
    assert all(note.startswith("note 1") for note in moved)


@pytest.mark.parametrize(
    "columns", ["id bigint, note text", "id bigint, note text, completed_at timestamptz, more text"]
)
async def test_tables_that_differ_are_refused_with_the_column(place: Place, columns: str) -> None:
    _fill(place)
    target = _target(place, columns)
    move_rows(
        place.app,
        "cleanup",
        source="deliveries",
        target=target,
        at="completed_at",
        older_than="90d",
    )
    summary = await _tick(place)
    note = str(summary.runner_results["cleanup"].note)
    assert "HF112" in note or "has no column" in note
    assert len(place.rows()) == 27


def test_declarations_that_mean_nothing_are_refused(place: Place) -> None:
    def move(**options: Any) -> None:
        given = {"source": "a", "target": "b", "at": "c", "older_than": "90d", **options}
        move_rows(place.app, "cleanup", **given)

    for options in (
        {"target": "a"},
        {"batch": 0},
        {"older_than": "soon"},
        {"older_than": "3000 years"},
        {"at": "a b"},
    ):
        with pytest.raises(HoldfastError):
            move(**options)
    with pytest.raises(InvalidOption):
        move(target="a")


@pytest.mark.parametrize(
    ("older_than", "expected"),
    [
        ("12 months", "2027-02-28"),
        ("1 year", "2027-02-28"),
        ("90d", "2027-12-01"),
        ("1 month", "2028-01-29"),
    ],
)
def test_an_age_may_be_calendar_months(older_than: str, expected: str) -> None:
    assert age_before(older_than)(datetime(2028, 2, 29, tzinfo=UTC)).date().isoformat() == expected
