"""Jobs with limits in a test: the worker ends when nothing is left, and may die in one of them."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Holdfast, Job, Limit
from holdfast.worker import limited_claims
from holdfast_testing.kit import Kit

app = Holdfast(hints=False)


@app.job("charge", limits=[Limit(2, by="customer")])
def charge(job: Job[dict[str, Any]]) -> str:
    return "charged"


@pytest.fixture
def holdfast_app() -> Holdfast:
    return app


def test_a_worker_ends_when_nothing_is_left_however_long_its_full_looks_take(
    holdfast: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_claims, "COST_FACTOR", 1e9)
    monkeypatch.setattr(limited_claims, "FULL_POLL_MAX_S", 3_600.0)
    with app.transaction() as tx:
        app.start_many(tx, charge, [{"customer": "ada"}] * 6)
    holdfast.run_until_idle()
    holdfast.run_until_idle()
    assert [each.state for each in holdfast.started("charge")] == ["completed"] * 6


def test_a_worker_dies_in_a_limited_job_and_another_runs_it(holdfast: Kit) -> None:
    with app.transaction() as tx:
        chain = app.start(tx, charge, {"customer": "ada"})
    assert holdfast.crash("charge").state == "running"
    holdfast.advance("61s")
    holdfast.run_until_idle()
    holdfast.advance("5s")
    holdfast.run_until_idle()
    assert app.chains.get(chain.id).state == "completed"
