"""Which references to large values each statement finds: those of a page of rows, wherever a payload may stand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.job_rows import NOW, ended, job, step
from tests.support.tables import Planted, Row, id_of


def large(number: int) -> str:
    return f'{{"$large":"{number}"}}'


SEALED = '{"$sealed":"x"}'
LONG = '{"$large":"' + "x" * 589
"""As long as the longest reference that is read, and no document: nothing looks at more than its beginning."""


@pytest.fixture(params=["postgres", "sqlite"])
def rows(request: pytest.FixtureRequest) -> Iterator[Planted]:
    rows = Planted(request.getfixturevalue(f"{request.param}_url"))
    yield rows
    rows.close()


def look(rows: Planted, name: str, **params: Any) -> tuple[Any, list[str]]:
    """Ask for a page; return where it ends, and its references."""
    ((end, texts),) = rows.ask(name, **params)
    return end, sorted(json.loads(texts))


def revision(number: int, text: str) -> Row:
    return {"job_id": id_of(number), "input": text, "at": NOW, "quiet_ms": 0}


MADE: dict[str, tuple[str, Callable[[int, str], Row]]] = {
    "large_value_inputs": ("job", lambda number, text: job(number, input=text)),
    "large_value_outputs": ("outcome", lambda number, text: ended(number, output=text)),
    "large_value_revisions": ("revision", revision),
    "large_value_steps": ("step", lambda number, text: step(number, output=text)),
}
"""The table that each statement walks along, and a row of it."""


@pytest.mark.parametrize("statement", MADE)
def test_references_are_found_page_by_page_along_the_jobs(rows: Planted, statement: str) -> None:
    table, made = MADE[statement]
    rows.plant(table, *(made(number, large(number)) for number in (5, 4, 3, 2, 1)))
    assert look(rows, statement, after=id_of(1), limit=2) == (id_of(3), [large(2), large(3)])
    assert look(rows, statement, after=id_of(3), limit=9) == (id_of(5), [large(4), large(5)])
    assert look(rows, statement, after=id_of(5), limit=9) == (None, [])


@pytest.mark.parametrize("statement", MADE)
def test_only_what_reads_like_a_reference_is_returned(rows: Planted, statement: str) -> None:
    table, made = MADE[statement]
    assert len(LONG) == 600
    texts = ["null", '{"large":1}', SEALED, large(4), LONG[:-1], LONG]
    rows.plant(table, *(made(number, text) for number, text in enumerate(texts, 1)))
    found = look(rows, statement, after=id_of(0), limit=99)
    assert found == (id_of(6), sorted([SEALED, large(4), LONG[:-1]]))


@pytest.mark.parametrize("statement", ["large_value_revisions", "large_value_steps"])
def test_a_page_of_jobs_has_all_rows_of_each(rows: Planted, statement: str) -> None:
    table, made = MADE[statement]
    several = [(1, 10), (1, 11), (2, 20), (2, 21), (3, 30)]
    for place, (number, text) in enumerate(several):
        name = {"name": f"step{place}"} if table == "step" else {}
        rows.plant(table, made(number, large(text)) | name)
    expected = [large(each) for each in (10, 11, 20, 21)]
    assert look(rows, statement, after=id_of(0), limit=2) == (id_of(2), expected)


def event(rows: Planted, line: int, place: int, text: str) -> Row:
    part = {"part": 0} if rows.is_postgres else {}
    id = id_of(line * 100 + place)
    return {"line": line, "place": place, "event": "paid", "data": text, "id": id, "at": NOW} | part


def test_references_of_events_are_found_along_the_lines(rows: Planted) -> None:
    places = [(2, 2), (2, 1), (1, 9), (1, 8), (1, 7), (0, 9)]
    rows.plant("log", *(event(rows, *each, large(sum(each))) for each in places))
    rows.plant("log", event(rows, 3, 1, '{"n":1}'), event(rows, 3, 2, LONG))

    def walk(line: int, place: int, limit: int) -> tuple[Any, list[str]]:
        end, texts = look(rows, "large_value_events", line=line, place=place, limit=limit)
        return end and tuple(json.loads(end)), texts

    assert walk(1, 7, 3) == ((2, 1), sorted([large(9), large(10), large(3)]))
    assert walk(2, 1, 9) == ((3, 2), [large(4)])
    assert walk(3, 2, 9) == (None, [])


def test_references_of_parked_events_are_found(rows: Planted) -> None:
    parked = {"reader": "m", "state": "failed", "attempts": 1, "parked_at": NOW}
    for place, text in enumerate([large(1), "null", LONG, SEALED]):
        row = event(rows, 1, place, text) | parked
        row.pop("part", None)
        rows.plant("log_parked", row)
    assert look(rows, "large_value_parked") == (None, sorted([large(1), SEALED]))
