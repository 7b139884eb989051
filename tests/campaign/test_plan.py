"""The plan of faults: the seed decides all of it."""

from collections import Counter

import pytest

from holdfast_chaos.faults import KINDS, Fault, make_plan
from holdfast_chaos.target import LINE_FAULTS, SERVER_FAULTS, SQLITE_FAULTS


def test_a_seed_means_the_same_faults_every_time() -> None:
    first, second = (make_plan(7, 60.0, list(KINDS), 1.0) for _ in range(2))
    assert first == second
    assert first != make_plan(8, 60.0, list(KINDS), 1.0)


def test_the_order_in_which_kinds_are_named_does_not_matter() -> None:
    assert make_plan(7, 60.0, ["kill", "cut"], 1.0) == make_plan(7, 60.0, ["cut", "kill"], 1.0)


def test_every_kind_comes_as_often_as_the_others() -> None:
    counts = Counter(each.kind for each in make_plan(7, 600.0, list(KINDS), 1.0))
    assert set(counts) == set(KINDS)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_faults_are_numbered_in_the_order_of_their_times_within_the_campaign() -> None:
    plan = make_plan(7, 60.0, list(KINDS), 1.0)
    assert [each.number for each in plan] == list(range(1, len(plan) + 1))
    assert sorted(each.at for each in plan) == [each.at for each in plan]
    assert 0 < plan[0].at < plan[-1].at < 60
    assert 45 < len(plan) < 75


def test_without_kinds_there_are_no_faults() -> None:
    assert make_plan(7, 60.0, [], 1.0) == []


def test_every_fault_that_a_database_may_refuse_exists() -> None:
    assert {*LINE_FAULTS, *SERVER_FAULTS, *SQLITE_FAULTS} <= set(KINDS)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_says_what_it_does(kind: type[Fault]) -> None:
    assert kind.text
