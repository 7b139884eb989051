"""What each statement within a context reads: jobs that were started in one with this name and value, and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.job_rows import NOW, ended, job
from tests.support.tables import Planted, id_of

IN_ACME = {"context_name": "tenant", "context_value": "acme"}
ACME, GLOBEX, USER = '{"tenant":"acme"}', '{"tenant":"globex"}', '{"user":"acme"}'


@pytest.fixture(params=["postgres", "sqlite"])
def rows(request: pytest.FixtureRequest) -> Iterator[Planted]:
    rows = Planted(request.getfixturevalue(f"{request.param}_url"))
    yield rows
    rows.close()


def plant(rows: Planted, context: str, *numbers: int) -> None:
    rows.plant("job", *(job(number, context=context) for number in numbers))


def test_jobs_of_a_context_are_told_from_others(rows: Planted) -> None:
    plant(rows, ACME, 1, 2)
    plant(rows, GLOBEX, 3)
    plant(rows, USER, 4)
    ids = json.dumps([id_of(number) for number in (1, 3, 4, 9)])
    assert rows.ask("context_within", **IN_ACME, ids=ids) == [(id_of(1),)]


def test_the_names_beside_a_context_are_found_among_its_newest_jobs(rows: Planted) -> None:
    plant(rows, '{"tenant":"acme","old":"x"}', 1)
    plant(rows, '{"tenant":"acme","a":"x"}', 2, 3)
    plant(rows, '{"tenant":"globex","b":"x"}', 4)
    plant(rows, '{"user":"acme","c":"x"}', 5)

    def names() -> list[Any]:
        return sorted(rows.ask("context_names", **IN_ACME))

    assert names() == [("a",), ("old",), ("tenant",)]
    plant(rows, ACME, *range(100, 198))
    assert names() == [("a",), ("tenant",)]


def test_ids_are_found_by_their_beginning_and_the_newest_by_their_end(rows: Planted) -> None:
    plant(rows, ACME, 77, 101, 150, 277)
    rows.plant("job", job(177, chain_id=id_of(101), chain_index=1, context=ACME))
    plant(rows, GLOBEX, 160, 377)
    plant(rows, USER, 161, 477)

    def found(digits: str = "77", **params: Any) -> list[int]:
        usual = {"first": id_of(101), "last": id_of(177), "chains": False, "limit": 9, "newest": 9}
        ids = rows.ask("context_ids_like", **IN_ACME, digits=digits, **usual | params)
        return [int(id[-12:]) for (id,) in ids]

    assert found() == [277, 177, 150, 101, 77]
    assert found(chains=True) == [277, 150, 101, 77]
    assert found(newest=1) == [277, 177, 150, 101]
    assert found(limit=2) == [277, 177]
    assert found("99", limit=2) == [177, 150]
    assert found(first=id_of(102), last=id_of(176)) == [277, 177, 150, 77]


def dead(number: int, type: str, fingerprint: str | None, after: int, **values: Any) -> Any:
    named = {"type": type, "fingerprint": fingerprint, "finished_at": NOW + after}
    return ended(number, "failed", error=f"error {number}", **named) | values


def test_dead_letters_of_a_context_are_grouped_the_most_frequent_first(rows: Planted) -> None:
    plant(rows, ACME, *range(1, 8), 9, 10)
    plant(rows, GLOBEX, 8)
    plant(rows, USER, 11)
    rows.plant(
        "outcome",
        dead(1, "A", "x", 1),
        dead(2, "A", "x", 5),
        dead(3, "A", "x", 5),
        dead(4, "A", "y", 2),
        dead(5, "B", None, 3),
        dead(6, "B", None, 4),
        dead(7, "A", "x", 9, state="completed"),
        dead(8, "A", "x", 99),
        dead(9, "A", None, 2),
        dead(10, "C", "a", 2),
        dead(11, "A", "x", 99),
    )

    def groups(look: int = 99, limit: int = 99) -> list[Any]:
        found = rows.ask("context_dead_groups", **IN_ACME, look=look, limit=limit)
        return [(*row[:3], row[3] - NOW, row[4] - NOW, int(row[5][-12:]), row[6]) for row in found]

    expected = [
        ("A", "x", 3, 1, 5, 3, "error 3"),
        ("B", None, 2, 3, 4, 6, "error 6"),
        ("A", "y", 1, 2, 2, 4, "error 4"),
        ("A", None, 1, 2, 2, 9, "error 9"),
        ("C", "a", 1, 2, 2, 10, "error 10"),
    ]
    assert groups() == expected
    assert groups(limit=2) == expected[:2]
    assert groups(look=2) == [("A", "x", 2, 5, 5, 3, "error 3")]
    # Ten times as many of its newest jobs are looked at.
    plant(rows, ACME, *range(20, 30))
    assert groups(look=1) == []
    assert groups(look=2) == [("A", "x", 2, 5, 5, 3, "error 3")]
