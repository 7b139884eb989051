"""What is put off to `make torture` is run there, and what that must come to is held against its figures."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.torture.figures import shortfalls
from tests.torture.parts import MARKED, SEEDS, make_lanes

ROOT = Path(__file__).parents[2]
GREEN: dict[str, Any] = {
    "store": "PostgreSQL 18",
    "jobs": 100_000,
    "faults": {f"kind {number}": 125 for number in range(8)},
    "lost": 0,
    "lost_by_failover": 0,
    "duplicates": 40,
    "duplicates_explained": 40,
    "fencing_violations": 0,
    "refused_zombie_writes": 12,
    "events_lost": 0,
    "events_lost_by_failover": 0,
    "events_twice": 0,
    "events_out_of_order": 0,
    "recovery_p99_s": 5.7,
    "free_restart_p99_s": 10.2,
    "verdict": "green",
    "plan": {"lease_s": 3.0},
}
SOUND = {"seeds": SEEDS, "failed": 0, "fewest_jobs": 50, "fewest_faults": 4}


def test_no_marked_test_is_outside_of_what_torture_runs() -> None:
    roots = [ROOT / each for each in MARKED if not each.startswith("-") and each != "torture"]
    marked = [
        path
        for folder in ("tests", "apps", "packages", "docs")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"mark\.torture\b", path.read_text("utf-8"))
    ]
    assert len(marked) > 10
    assert [path for path in marked if not any(path.is_relative_to(each) for each in roots)] == []


def test_the_makefile_names_no_marked_tests_of_its_own() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert "-m torture" not in makefile
    assert "tests.torture" in makefile


def test_each_part_has_a_name_of_its_own_and_records_only_when_asked() -> None:
    parts = [part for lane in make_lanes(1, 1, None) for part in lane]
    assert len({each.name for each in parts}) == len(parts)
    assert not any("--record" in each.words for each in parts)
    recorded = [part for lane in make_lanes(1, 1, "file") for part in lane if "file" in part.words]
    assert {each.name for each in recorded} == {
        *("campaign-postgres", "campaign-standby", "campaign-standby-async"),
        *("campaign-full-disk", "campaign-sqlite", "seeds"),
    }


def test_what_is_promised_has_no_shortfall() -> None:
    assert list(shortfalls([GREEN], SOUND, 1, SEEDS)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"jobs": 99_999},
        {"faults": {f"kind {number}": 10 for number in range(8)}},
        {"faults": {"kill": 2_000}},
        {"lost": 1},
        {"lost_by_failover": 1},
        {"duplicates_explained": 39},
        {"fencing_violations": 1},
        {"events_lost": 1},
        {"events_lost_by_failover": 1},
        {"refused_zombie_writes": 0},
        {"recovery_p99_s": 5.8},
        {"free_restart_p99_s": 10.3},
        {"verdict": "unknown"},
        {"store": "PostgreSQL 18, synchronous standby"},
        {"store": "PostgreSQL 18, small disk"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_figure_that_falls_short_is_named(change: dict[str, Any]) -> None:
    assert len(list(shortfalls([GREEN | change], SOUND, 1, SEEDS))) == 1


@pytest.mark.parametrize(
    ("change", "counted"),
    [
        ({"lost_by_failover": 9, "events_lost_by_failover": 7}, 0),
        ({"free_restart_p99_s": 30.0}, 0),
        ({"recovery_p99_s": 5.8}, 1),
        ({"lost": 1}, 1),
        ({"events_lost": 1}, 1),
        ({"faults": {f"kind {number}": 125 for number in range(8)}}, 1),
    ],
    ids=["counted apart", "queued", "recovered late", "lost", "events lost", "not promoted"],
)
def test_what_an_asynchronous_standby_lacked_is_not_held_against_its_campaign(
    change: dict[str, Any], counted: int
) -> None:
    name = {"store": "PostgreSQL 18, asynchronous standby"}
    promoted = {"faults": GREEN["faults"] | {"promote": 1}}
    assert len(list(shortfalls([GREEN | name | promoted | change], SOUND, 1, SEEDS))) == counted


@pytest.mark.parametrize(
    "seeds",
    [None, *(SOUND | each for each in ({"seeds": 10}, {"failed": 1}, {"fewest_faults": 2}))],
)
def test_seeds_that_fall_short_are_named(seeds: dict[str, Any] | None) -> None:
    assert len(list(shortfalls([GREEN], seeds, 1, SEEDS))) == 1
