"""The testing kit as a user's own tests would use it, on both stores."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from holdfast import Continue, Holdfast, Job, Retry
from holdfast_testing.kit import Kit

app = Holdfast()
charged: list[int] = []


@dataclass
class Order:
    """What the jobs of this test are about."""

    id: int


@app.job("order.charge", retry=Retry(base="10s", max_attempts=3))
def charge(job: Job[Order]) -> Continue:
    """Fails for order 13, else goes on."""
    if job.input.id == 13 and job.attempt == 1:
        raise RuntimeError("the card was declined")
    charged.append(job.input.id)
    return Continue("order.ship", Order(job.input.id))


@app.job("order.ship")
async def ship(job: Job[Order]) -> str:
    """The end of the chain."""
    return f"shipped {job.input.id}"


@pytest.fixture
def holdfast_app() -> Holdfast:
    charged.clear()
    return app


def test_jobs_run_until_nothing_is_due(holdfast: Kit) -> None:
    with app.transaction() as tx:
        chain = app.start(tx, charge, Order(1))
    holdfast.run_until_idle()
    assert app.chains.get(chain.id).output == "shipped 1"
    assert holdfast.assert_started("order.ship", id=1).state == "completed"
    with pytest.raises(AssertionError, match=r"no job order\.ship"):
        holdfast.assert_started("order.ship", id=2)


def test_a_retry_runs_when_the_time_was_moved(holdfast: Kit) -> None:
    with app.transaction() as tx:
        chain = app.start(tx, charge, Order(13))
    holdfast.run_until_idle()
    assert app.chains.get(chain.id).state == "pending"
    holdfast.advance("11s")
    holdfast.run_until_idle()
    assert app.chains.get(chain.id).output == "shipped 13"


def test_a_deferred_chain_waits_for_its_time(holdfast: Kit) -> None:
    with app.transaction() as tx:
        app.start(tx, charge, Order(2), after="1h")
    holdfast.run_until_idle()
    assert charged == []
    holdfast.advance("1h")
    holdfast.run_until_idle()
    assert charged == [2]


def test_every_job_is_found_however_many_there_are(holdfast: Kit) -> None:
    with app.transaction() as tx:
        app.start_many(tx, charge, [Order(number) for number in range(1_001)])
    assert [each.input["id"] for each in holdfast.started("order.charge")] == list(range(1_001))
    assert holdfast.assert_started("order.charge", id=0).state == "pending"


def test_one_job_at_a_time(holdfast: Kit) -> None:
    with app.transaction() as tx:
        app.start_many(tx, charge, [Order(1), Order(2)])
    holdfast.run_one()
    assert charged == [1]


def test_a_job_whose_worker_died_runs_again_after_its_lease(holdfast: Kit) -> None:
    with app.transaction() as tx:
        chain = app.start(tx, charge, Order(3))
    assert holdfast.crash("order.charge").state == "running"
    holdfast.run_until_idle()
    assert charged == []
    holdfast.advance("61s")
    holdfast.run_until_idle()
    holdfast.advance("5s")
    holdfast.run_until_idle()
    assert app.chains.get(chain.id).output == "shipped 3"


async def test_the_kit_serves_async_tests(holdfast: Kit) -> None:
    async with app.transaction() as tx:
        await app.start(tx, charge, Order(4))
    await holdfast.run_until_idle_async()
    assert charged == [4]
    await app.aclose()
