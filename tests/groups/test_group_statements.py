"""What each statement about groups counts: the first chains of one job, by how their last jobs are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.storage.store.params import fetch
from holdfast_groups.progress import GroupProgress, GroupSummary, read_progress_of
from tests.support.job_rows import NOW, ended, job, live, waits
from tests.support.tables import Planted, id_of

ACME, GLOBEX, USER = '{"tenant":"acme"}', '{"tenant":"globex"}', '{"user":"acme"}'
IN_ACME = {"context_name": "tenant", "context_value": "acme"}
GROUP, TOKEN = 100, 900


@pytest.fixture(params=["postgres", "sqlite"])
def rows(request: pytest.FixtureRequest) -> Iterator[Planted]:
    rows = Planted(request.getfixturevalue(f"{request.param}_url"))
    yield rows
    rows.close()


def plant_group(rows: Planted) -> None:
    """A group of chains in every state, of which one was removed and one went on; another chain is called by a step."""
    contexts = {4: GLOBEX, 5: None, 3: USER}
    for number in (1, 2, 3, 4, 5, 7, 8, 9):
        rows.plant("job", job(number, context=contexts.get(number, ACME)))
    rows.plant("job", job(17, chain_id=id_of(7), chain_index=1, context=ACME))
    rows.plant(
        "job", job(GROUP, context='{"tenant":"acme","user":"acme"}'), job(101, context=GLOBEX)
    )
    rows.plant("queue", live(1), live(2, TOKEN), live(17), live(8), live(9), live(101))
    rows.plant("outcome", ended(3), ended(4, "failed"), ended(5, "cancelled"))
    rows.plant("outcome", ended(7, continued=True))
    for place, chain in enumerate((7, 6, 5, 4, 3, 2, 1)):
        rows.plant("blocker", waits(GROUP, chain, position=place))
    rows.plant("blocker", waits(GROUP, 8, step=1), waits(101, 9), waits(101, 1))


def test_the_chains_of_a_group_are_counted_by_their_last_jobs(rows: Planted) -> None:
    plant_group(rows)

    def progress(group: int) -> Any:
        return rows.run(fetch(GroupProgress, "group_progress", job=id_of(group)))

    assert progress(GROUP) == [GroupProgress(7, 2, 1, 2, 1, 1)]
    assert progress(101) == [GroupProgress(2, 2, 0, 0, 0, 0)]
    assert progress(1) == [GroupProgress(0, 0, 0, 0, 0, 0)]


def test_any_chains_that_there_are_can_be_counted(rows: Planted) -> None:
    plant_group(rows)
    chains = [id_of(each) for each in (3, 7, 6, 17)]
    assert rows.run(read_progress_of(chains)) == GroupProgress(2, 1, 0, 1, 0, 0)


def test_the_jobs_that_a_group_still_waits_for_are_found(rows: Planted) -> None:
    plant_group(rows)
    found = rows.ask("group_open_jobs", job=id_of(GROUP))
    assert [id for (id,) in found] == [id_of(1), id_of(2), id_of(17)]


def test_within_a_context_the_chains_of_others_are_not_counted(rows: Planted) -> None:
    plant_group(rows)

    def progress(group: int) -> Any:
        found = fetch(GroupProgress, "group_progress_context", job=id_of(group), **IN_ACME)
        return rows.run(found)

    assert progress(GROUP) == [GroupProgress(3, 2, 1, 0, 0, 0)]
    assert progress(101) == [GroupProgress(0, 0, 0, 0, 0, 0)]


def plant_groups(rows: Planted) -> None:
    """Jobs that wait for chains: by a group, only if these succeed, in a step, and those of others."""
    for number, context in {1: ACME, 2: GLOBEX, 3: USER, 4: None, 5: ACME, 6: ACME}.items():
        rows.plant("job", job(number, context=context))
    contexts = {205: GLOBEX, 206: USER}
    for number in range(200, 207):
        rows.plant("job", job(number, type=f"t{number}", context=contexts.get(number, ACME)))
    rows.plant("queue", live(200, TOKEN), live(201), live(202), live(205), live(206))
    rows.plant("outcome", ended(203), ended(204, "failed"))
    gone = {"open": False}
    rows.plant(
        "blocker",
        *(waits(200, chain, **(gone if chain == 1 else {})) for chain in (1, 2, 3, 6)),
        *(waits(200, chain, step=1, **gone) for chain in (4, 5)),
        waits(201, 1, on_failure="fail"),
        waits(202, 1, step=1),
        waits(202, 2, on_failure="fail"),
        *(waits(203, chain, **gone) for chain in (1, 5, 4)),
        waits(204, 2),
        waits(205, 1),
        waits(206, 1),
    )


def summary(number: int, state: Any, total: int, ended: int) -> GroupSummary:
    return GroupSummary(id_of(number), f"t{number}", state, total, ended, NOW)


def listed(rows: Planted, name: str, **params: Any) -> list[GroupSummary]:
    usual: dict[str, Any] = {"before": id_of(999), "look": 99, "limit": 99, "max_count": 99}
    return rows.run(fetch(GroupSummary, name, **usual | params))


def test_the_newest_groups_are_listed_with_how_many_of_their_chains_have_ended(
    rows: Planted,
) -> None:
    plant_groups(rows)
    groups = [
        summary(206, "pending", 1, 0),
        summary(205, "pending", 1, 0),
        summary(204, "failed", 1, 0),
        summary(203, "completed", 3, 3),
        summary(200, "running", 4, 1),
    ]
    assert listed(rows, "group_list") == groups
    assert listed(rows, "group_list", before=id_of(204)) == groups[3:]
    assert listed(rows, "group_list", limit=2) == groups[:2]
    # Of those that wait for anything so many are looked at.
    assert listed(rows, "group_list", look=4) == groups[:4]
    assert listed(rows, "group_list", before=id_of(203), look=2) == []
    assert listed(rows, "group_list", before=id_of(203), look=3) == groups[4:]
    assert listed(rows, "group_list", before=id_of(204), limit=1, max_count=2) == [
        summary(203, "completed", 2, 2)
    ]


def test_within_a_context_groups_of_others_are_not_listed_and_their_chains_not_counted(
    rows: Planted,
) -> None:
    plant_groups(rows)

    def within(**params: Any) -> list[GroupSummary]:
        return listed(rows, "group_list_context", **IN_ACME, **params)

    groups = [
        summary(204, "failed", 0, 0),
        summary(203, "completed", 2, 2),
        summary(200, "running", 2, 1),
    ]
    assert within() == groups
    assert within(before=id_of(204)) == groups[1:]
    assert within(limit=2) == groups[:2]
    assert within(before=id_of(204), limit=1, max_count=1) == [summary(203, "completed", 1, 1)]
    # Ten times as many of its newest jobs are looked at as of those that wait.
    rows.plant("job", *(job(number, context=ACME) for number in range(300, 310)))
    assert within(look=1) == []
    assert within(look=2) == groups
