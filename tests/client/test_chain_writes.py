"""Ending, moving and deleting chains from outside, and waiting for them, on both stores and in both colours."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Unpack

import pytest

from holdfast import Chain, Holdfast
from holdfast.client.start_options import StartOptions
from holdfast.commands.jobs import end_jobs
from holdfast.core.errors import (
    ChainCancelled,
    ChainDeleted,
    ChainFailed,
    ChainNotFound,
    InvalidOption,
    PayloadNotEncodable,
    StillReferenced,
    WaitTimeout,
    WrongState,
)
from holdfast.core.events import Event
from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast.core.records import Ending
from holdfast.storage.id_generator import new_id
from tests.support.buckets import bucket_of


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest) -> Iterator[Holdfast]:
    """An application without handlers on an empty database."""
    app = Holdfast(request.getfixturevalue(f"{request.param}_url"), open_types=True)
    app.migrate()
    yield app
    app.close()


def started(app: Holdfast, type: str = "report", **options: Unpack[StartOptions]) -> Chain:
    with app.transaction() as tx:
        return app.start(tx, type, {"n": 1}, **options)


class Heard:
    """Hears why jobs were cancelled."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def observe(self, event: Event) -> None:
        if event.name == "job_cancelled":
            self.reasons.append(str(event.fields["reason"]))


def failed(app: Holdfast, chain: Chain) -> None:
    ending = Ending(id=str(chain.id), state="failed", error="Boom: no")
    app.database.run(end_jobs(app.database.store, [ending]))


def test_completing_from_outside_ends_the_chain_with_the_output(app: Holdfast) -> None:
    chain = started(app)
    with app.transaction() as tx:
        ended = app.chains.complete(tx, chain.id, {"pages": 3})
    assert (ended.state, ended.output) == ("completed", {"pages": 3})
    assert app.chains.get(chain.id).output == {"pages": 3}


@pytest.mark.parametrize("answer", [Continue("next"), Snooze("1m"), Cancel("no")], ids=type)
def test_a_handlers_answer_is_no_output(app: Holdfast, answer: object) -> None:
    chain = started(app)
    with app.transaction() as tx, pytest.raises(InvalidOption, match="not an output"):
        app.chains.complete(tx, chain.id, answer)
    assert app.chains.get(chain.id).state == "pending"


@pytest.mark.parametrize("reason", ["a \0 b", "a \ud800", "password=hunter2", "x" * 100_000])
def test_the_reason_of_a_cancellation_is_kept_cleaned(app: Holdfast, reason: str) -> None:
    chain, single, heard = started(app), started(app), Heard()
    app.observe(heard)
    with app.transaction() as tx:
        app.chains.cancel(tx, chain.id, reason)
        app.jobs.cancel(tx, single.id, reason=reason)
    kept = [str(app.jobs.get(each.id).error) for each in (chain, single)]
    for text in (*kept, *heard.reasons):
        assert "hunter2" not in text
        assert len(text.encode()) <= 8_192
    assert len(heard.reasons) == 2


def test_a_job_that_is_named_twice_is_cancelled_once(app: Holdfast) -> None:
    chain, heard = started(app), Heard()
    app.observe(heard)
    with app.transaction() as tx:
        assert app.jobs.cancel(tx, chain, chain.id, str(chain.id).upper(), reason="no") == 1
    assert app.jobs.get(chain.id).state == "cancelled"
    assert len(heard.reasons) == 1


def test_an_output_that_cannot_be_kept_is_refused_as_such(app: Holdfast) -> None:
    chain = started(app)
    with app.transaction() as tx, pytest.raises(PayloadNotEncodable, match="the output cannot"):
        app.chains.complete(tx, chain.id, object())
    assert app.chains.get(chain.id).state == "pending"


def test_a_rolled_back_completion_leaves_the_chain_as_it_was(app: Holdfast) -> None:
    chain = started(app)

    def complete_two() -> None:
        with app.transaction() as tx:
            app.chains.complete(tx, chain.id, 1)
            app.chains.complete(tx, new_id(), 1)

    with pytest.raises(ChainNotFound):
        complete_two()
    assert app.chains.get(chain.id).state == "pending"


def test_an_ended_chain_cannot_be_ended_again(app: Holdfast) -> None:
    chain = started(app)
    with app.transaction() as tx:
        app.chains.cancel(tx, chain.id, "not needed")
    with pytest.raises(WrongState), app.transaction() as tx:
        app.chains.complete(tx, chain.id, 1)
    with pytest.raises(ChainNotFound), app.transaction() as tx:
        app.chains.complete(tx, new_id(), 1)


def test_a_job_that_continues_a_chain_from_outside_has_the_chain_s_bucket(app: Holdfast) -> None:
    chain = started(app, key="order-7")
    with app.transaction() as tx:
        app.chains.continue_with(tx, chain.id, "second")
        app.chains.continue_with(tx, chain.id, "third")
    ids = [str(job.id) for job in app.chains.jobs(chain.id)]
    assert len(ids) == 3
    assert {bucket_of(each) for each in ids} == {bucket_of(str(chain.id))}


def test_a_chain_is_walked_several_steps_from_outside(app: Holdfast) -> None:
    chain = started(app)
    with app.transaction() as tx:
        app.chains.continue_with(tx, chain.id, "second", {"n": 2})
        app.chains.continue_with(tx, chain.id, "third", {"n": 3})
        ended = app.chains.complete(tx, chain.id, "done")
    assert (ended.state, ended.output, ended.jobs) == ("completed", "done", 3)
    assert [job.type for job in app.chains.jobs(chain.id)] == ["report", "second", "third"]
    assert [job.type for job in app.chains.jobs(chain.id, last=2)] == ["second", "third"]
    with pytest.raises(InvalidOption, match="last=0 is not a whole number"):
        app.chains.jobs(chain.id, last=0)


def test_completing_a_blocker_from_outside_opens_the_job_that_waits(app: Holdfast) -> None:
    first, second = started(app), started(app)
    waiting = started(app, "sum", blockers=[first, second])
    assert waiting.state == "blocked"
    with app.transaction() as tx:
        app.chains.complete(tx, first.id, 1)
    assert app.chains.get(waiting.id).state == "blocked"
    with app.transaction() as tx:
        app.chains.complete(tx, second.id, 2)
    assert app.chains.get(waiting.id).state == "pending"


def test_a_deferred_chain_is_triggered_and_a_failed_one_retried(app: Holdfast) -> None:
    later = started(app, after="1h")
    with app.transaction() as tx:
        app.chains.trigger(tx, later.id)
    broken = started(app)
    failed(app, broken)
    with app.transaction() as tx:
        assert app.chains.retry(tx, broken.id).state == "pending"
    with pytest.raises(WrongState), app.transaction() as tx:
        app.chains.retry(tx, broken.id)


def test_a_chain_that_others_wait_for_is_not_deleted_unless_they_go_too(app: Holdfast) -> None:
    blocker = started(app)
    waiting = started(app, "sum", blockers=[blocker])
    with pytest.raises(StillReferenced), app.transaction() as tx:
        app.chains.delete(tx, blocker.id)
    with app.transaction() as tx:
        assert app.chains.delete(tx, waiting.id, cascade=True) == 2
    with pytest.raises(ChainNotFound):
        app.chains.get(blocker.id)


def test_a_cascade_passes_over_chains_that_were_deleted_before(app: Holdfast) -> None:
    blocker = started(app)
    waiting = started(app, "sum", blockers=[blocker])
    with app.transaction() as tx:
        app.chains.complete(tx, blocker.id)
        app.chains.delete(tx, blocker.id)
    with app.transaction() as tx:
        assert app.chains.delete(tx, waiting.id, cascade=True) == 1


def test_commands_on_no_jobs_at_all_change_nothing(app: Holdfast) -> None:
    with app.transaction() as tx:
        for command in (
            app.jobs.cancel,
            app.jobs.trigger,
            app.dead_letters.redrive,
            app.dead_letters.drop,
            app.chains.delete,
        ):
            assert command(tx) == 0


async def test_the_same_writes_are_awaited_on_an_async_transaction(app: Holdfast) -> None:
    async with app.transaction() as tx:
        chain = await app.start(tx, "report", {"n": 1})
        ended = await app.chains.complete(tx, chain.id, 7)
    assert ended.output == 7
    assert (await app.aio.chains.wait(chain.id, timeout="5s")).output == 7
    await app.aclose()


def test_waiting_returns_when_the_chain_completes(app: Holdfast) -> None:
    chain = started(app)
    answers: list[Chain] = []
    waiter = threading.Thread(target=lambda: answers.append(app.chains.wait(chain.id, "20s")))
    waiter.start()
    with app.transaction() as tx:
        app.chains.complete(tx, chain.id, "ready")
    waiter.join(20)
    assert [each.output for each in answers] == ["ready"]


def test_waiting_tells_how_a_chain_ended_otherwise(app: Holdfast) -> None:
    broken, given_up, open_ended = started(app), started(app), started(app)
    failed(app, broken)
    with app.transaction() as tx:
        app.chains.cancel(tx, given_up.id)
    with pytest.raises(ChainFailed, match="Boom"):
        app.chains.wait(broken.id, "5s")
    with pytest.raises(ChainCancelled):
        app.chains.wait(given_up.id, "5s")
    with pytest.raises(WaitTimeout):
        app.chains.wait(open_ended.id, "50ms")
    with pytest.raises(ChainNotFound):
        app.chains.wait(new_id(), "5s")


async def test_a_chain_deleted_while_it_is_waited_for_is_told(app: Holdfast) -> None:
    chain = started(app)
    waiting = asyncio.create_task(app.aio.chains.wait(chain.id, "20s"))
    with pytest.raises(WaitTimeout):
        await app.aio.chains.wait(chain.id, "200ms")
    with app.transaction() as tx:
        app.chains.delete(tx, chain.id)
    with pytest.raises(ChainDeleted):
        await waiting
    await app.aclose()


async def test_a_thousand_waiters_share_one_thread(app: Holdfast) -> None:
    others = set(threading.enumerate())
    with app.transaction() as tx:
        chains = app.start_many(tx, "report", [{"n": n} for n in range(1000)])
    waiting = [asyncio.create_task(app.aio.chains.wait(each.id, "60s")) for each in chains]
    await asyncio.sleep(0)
    threads = [each for each in threading.enumerate() if each not in others]
    assert [each.name for each in threads].count("holdfast-waiting") == 1
    endings = [Ending(id=str(each.id), state="completed", output="1") for each in chains]
    await app.database.run_async(end_jobs(app.database.store, endings))
    assert len(await asyncio.gather(*waiting)) == 1000
    await app.aclose()
