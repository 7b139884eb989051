"""Durable functions in the testing kit: its clock ends sleeps and timeouts, and it sends signals. On both stores."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Holdfast, Job, SignalTimeout, SyncJob
from holdfast_testing.kit import Kit

app = Holdfast()
sent: list[str] = []


async def remind(number: int) -> str:
    """What a test counts."""
    sent.append(f"reminder {number}")
    return f"reminder {number}"


def remind_sync(number: int) -> str:
    """The same in a sync handler."""
    sent.append(f"reminder {number}")
    return f"reminder {number}"


@app.job("invoice.dun")
async def dun(job: Job[int]) -> str:
    """Reminds up to three times."""
    for number in range(3):
        await job.step("remind", remind, number)
        try:
            paid: str = await job.wait_for("paid", key=job.input, timeout="14d", returns=str)
        except SignalTimeout:
            continue
        return f"paid {paid} after {number + 1}"
    return "handed over"


@app.job("invoice.dun_sync")
def dun_sync(job: SyncJob[int]) -> str:
    """The same in a thread."""
    job.step("remind", remind_sync, 0)
    job.sleep("14d")
    job.step("remind", remind_sync, 1)
    return job.wait_for("paid", key=job.input, returns=str)


@app.job("invoice.pay")
def pay(job: Job[int]) -> None:
    """Sends a signal from a handler."""
    with app.transaction() as tx:
        app.signal(tx, "paid", key=job.input, data="by card")


@pytest.fixture
def holdfast_app() -> Holdfast:
    sent.clear()
    return app


def _start(target: Any, input: Any = 7) -> Any:
    with app.transaction() as tx:
        return app.start(tx, target, input).id


def test_the_clock_ends_timeouts(holdfast: Kit) -> None:
    id = _start(dun)
    holdfast.run_until_idle()
    assert sent == ["reminder 0"]
    holdfast.advance("13d")
    holdfast.run_until_idle()
    assert sent == ["reminder 0"]
    for _ in range(3):
        holdfast.advance("14d")
        holdfast.run_until_idle()
    assert sent == ["reminder 0", "reminder 1", "reminder 2"]
    assert app.chains.get(id).output == "handed over"


def test_the_clock_ends_sleeps_of_sync_functions(holdfast: Kit) -> None:
    id = _start(dun_sync)
    holdfast.run_until_idle()
    assert sent == ["reminder 0"]
    holdfast.advance("14d")
    holdfast.run_until_idle()
    assert sent == ["reminder 0", "reminder 1"]
    assert holdfast.signal("paid", key=7, data="in cash")
    holdfast.run_until_idle()
    assert app.chains.get(id).output == "in cash"


def _set_back(kit: Kit, days: int) -> None:
    kit._clock.ahead_us -= days * 86_400_000_000


def test_a_clock_that_is_set_back_leaves_the_end_of_a_sleep_where_it_was(holdfast: Kit) -> None:
    _start(dun_sync)
    holdfast.run_until_idle()
    holdfast.advance("13d")
    _set_back(holdfast, 20)
    holdfast.run_until_idle()
    holdfast.advance("20d")
    holdfast.run_until_idle()
    assert sent == ["reminder 0"]
    holdfast.advance("1d")
    holdfast.run_until_idle()
    assert sent == ["reminder 0", "reminder 1"]


@pytest.mark.parametrize(
    ("target", "output"), [(dun_sync, "in cash"), (dun, "paid in cash after 2")]
)
def test_what_is_over_stays_over_though_the_clock_is_set_back(
    holdfast: Kit, target: Any, output: str
) -> None:
    id = _start(target)
    holdfast.run_until_idle()
    holdfast.advance("14d")
    holdfast.run_until_idle()
    assert sent == ["reminder 0", "reminder 1"]
    _set_back(holdfast, 20)
    assert holdfast.signal("paid", key=7, data="in cash")
    holdfast.run_until_idle()
    assert app.chains.get(id).output == output
    assert sent == ["reminder 0", "reminder 1"]


def test_a_signal_wakes_the_function_that_waits_for_it(holdfast: Kit) -> None:
    id, other = _start(dun), _start(dun, 8)
    holdfast.run_until_idle()
    holdfast.advance("15d")
    holdfast.run_until_idle()
    assert holdfast.signal("paid", key=7, data="in cash", id="payment 1")
    assert not holdfast.signal("paid", key=7, data="in cash", id="payment 1")
    holdfast.run_until_idle()
    assert app.chains.get(id).output == "paid in cash after 2"
    assert app.chains.get(other).state == "pending"


def test_a_signal_that_a_job_sends_is_delivered_in_the_same_run(holdfast: Kit) -> None:
    id = _start(dun)
    holdfast.run_until_idle()
    _start(pay)
    report = holdfast.run_until_idle()
    assert app.chains.get(id).output == "paid by card after 1"
    assert report.counters["claimed"] == 2


async def test_an_async_test_sends_signals_too(holdfast: Kit) -> None:
    id = _start(dun)
    await holdfast.run_until_idle_async()
    assert holdfast.signal("paid", key=7, data="in cash")
    await holdfast.run_until_idle_async()
    assert app.chains.get(id).output == "paid in cash after 1"
    await app.aclose()
