"""Who waits for whom, asked from either side; and single jobs cancelled and triggered from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Chain, Holdfast
from holdfast.core.errors import ChainNotFound, FilterError, JobNotFound, WrongState
from holdfast.storage.id_generator import new_id
from tests.client.conftest import Heard
from tests.client.test_chain_hints import run_by


@pytest.fixture
def start(app: Holdfast) -> Callable[..., Chain]:
    def start(*arguments: Any, **options: Any) -> Chain:
        with app.transaction() as tx:
            return app.start(tx, *arguments, **options)

    return start


def test_a_job_lists_its_blockers_and_a_chain_its_waiters(
    app: Holdfast, start: Callable[..., Chain]
) -> None:
    first, second = start("first"), start("second")
    waiter = start("third", blockers=[second, first], on_blocker_failure="run")
    with app.transaction() as tx:
        app.chains.complete(tx, first.id, {"n": 1})
    below = app.jobs.blockers(waiter.id)
    assert [(each.chain_id, each.position, each.open) for each in below] == [
        (second.id, 0, True),
        (first.id, 1, False),
    ]
    assert [(each.state, each.output) for each in below] == [
        ("pending", None),
        ("completed", {"n": 1}),
    ]
    (above,) = app.chains.waiting(second.id)
    assert (above.job_id, above.on_failure, above.open) == (waiter.id, "run", True)
    assert [each.open for each in app.chains.waiting(first.id)] == [False]
    assert app.jobs.blockers(first.id) == []


async def test_the_same_in_the_other_colour(app: Holdfast, start: Callable[..., Chain]) -> None:
    first = start("first")
    waiter = start("second", blockers=[first])
    assert [each.chain_id for each in await app.aio.jobs.blockers(waiter.id)] == [first.id]
    assert [each.job_id for each in await app.aio.chains.waiting(first.id)] == [waiter.id]
    async with app.transaction() as tx:
        assert await app.jobs.cancel(tx, waiter.id) == 1


def test_the_filter_finds_those_who_wait_for_a_chain_and_those_who_waited(
    app: Holdfast, start: Callable[..., Chain]
) -> None:
    first = start("first")
    waiters = [start("waiter", blockers=[first], key=f"k{each}") for each in range(3)]
    start("other")
    with app.transaction() as tx:
        goes_on = app.start(tx, "begin")
        app.chains.complete(tx, first.id)
    found = app.chains.list(f"blocker:{first.id}")
    assert [each.id for each in found] == [each.id for each in reversed(waiters)]
    part = app.jobs.list(f"blocker:{first.id}", limit=2)
    rest = app.jobs.list(f"blocker:{first.id}", limit=2, after=part.next)
    assert [each.id for each in (*part, *rest)] == [each.id for each in reversed(waiters)]
    assert [each.key for each in app.chains.list(f"blocker:{first.id} key:k1")] == ["k1"]
    assert list(app.chains.list(f"blocker:{first.id} state:failed")) == []
    assert list(app.chains.list(f"blocker:{goes_on.id}")) == []
    with pytest.raises(FilterError):
        app.chains.list("blocker:nobody")


def test_what_is_not_there_cannot_be_asked(app: Holdfast) -> None:
    with pytest.raises(JobNotFound):
        app.jobs.blockers(new_id())
    with pytest.raises(ChainNotFound):
        app.chains.waiting(new_id())


def test_a_chain_started_behind_a_failed_one_is_shown_as_it_is(
    app: Holdfast, start: Callable[..., Chain]
) -> None:
    broken = start("first")
    with app.transaction() as tx:
        app.chains.cancel(tx, broken.id)
    states = {
        policy: start("second", blockers=[broken], on_blocker_failure=policy).state
        for policy in ("fail", "wait", "run")
    }
    assert states == {"fail": "failed", "wait": "blocked", "run": "pending"}


def test_jobs_are_cancelled_and_their_worker_is_told(
    app: Holdfast, heard: Heard, start: Callable[..., Chain]
) -> None:
    held, ended = start("held"), start("ended")
    run_by(app, "w-1", "held")
    waiter = start("waiter", blockers=[held])
    with app.transaction() as tx:
        app.chains.complete(tx, ended.id)
    heard.hints.clear()
    with app.transaction() as tx:
        assert app.jobs.cancel(tx, held.id, ended.id, reason="not wanted") == 1
    kinds = [each.kind for each in heard.hints]
    assert kinds == ["lost", "ended"]
    assert heard.hints[0].worker == "w-1"
    assert app.jobs.get(held.id).error == "Cancelled: not wanted"
    assert app.jobs.get(waiter.id).state == "failed"


def test_those_jobs_are_triggered_that_are_pending(
    app: Holdfast, start: Callable[..., Chain]
) -> None:
    later, blocked = start("later", after="1h"), start("blocked", blockers=[start("first")])
    planned = app.jobs.get(later.id).available_at
    with (
        pytest.raises(WrongState, match="cannot run a job that is blocked"),
        app.transaction() as tx,
    ):
        app.jobs.trigger(tx, blocked.id)
    with pytest.raises(JobNotFound), app.transaction() as tx:
        app.jobs.trigger(tx, new_id())
    with app.transaction() as tx:
        assert app.jobs.trigger(tx, later.id, blocked.id, new_id()) == 1
    assert app.jobs.get(later.id).available_at != planned
