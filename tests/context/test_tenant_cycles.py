"""Cycles that start one job per tenant and slot, on both databases."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Holdfast, Job
from holdfast.core.errors import ContextInvalid, InvalidOption
from holdfast_context import add_context
from holdfast_context.tenant_cycles import start_per_value
from holdfast_testing.kit import Kit


class SlotRun:
    """A run of a slot, as far as starts need it."""

    def __init__(self, key: str) -> None:
        self.key = key

    def checkpoint(self) -> None: ...


@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_a_slot_starts_one_job_for_each_tenant(
    database: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(f"{database}_url")
    app = Holdfast(url)
    context = add_context(app, capture=dict)
    tenants = ["acme", "globex", "acme"]
    seen: list[str] = []

    @app.job("report.make")
    def make(job: Job[Any]) -> None:
        seen.append(f"{job.context['tenant']} {job.input}")

    context.cycle("reports", make, per=lambda: tenants, input="daily", every="1h")
    kit = Kit(app, url)
    kit.run_cycle("reports")
    kit.run_until_idle()
    assert sorted(seen) == ["acme daily", "globex daily"]
    kit.close()
    app.close()


@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_a_run_that_is_repeated_starts_only_what_is_missing(
    database: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(f"{database}_url")
    app = Holdfast(url)

    @app.job("report.make")
    def make(job: Job[Any]) -> None: ...

    kit = Kit(app, url)
    first: Any = SlotRun("reports:1")
    start_per_value(app, first, make, None, "tenant", ["acme"])
    kit.run_until_idle()
    start_per_value(app, first, make, None, "tenant", ["acme", "globex"])
    start_per_value(app, first, make, None, "tenant", ["acme", "globex"])
    assert len(kit.started("report.make")) == 2
    second: Any = SlotRun("reports:2")
    start_per_value(app, second, make, None, "tenant", ["acme", "globex"])
    assert len(kit.started("report.make")) == 4
    kit.close()
    app.close()


def test_what_gives_no_tenants_is_refused(sqlite_url: str) -> None:
    app = Holdfast(sqlite_url)
    context = add_context(app, capture=dict)

    @app.job("report.make")
    def make(job: Job[Any]) -> None: ...

    with pytest.raises(InvalidOption, match="neither a list"):
        context.cycle("reports", make, per="acme", every="1h")
    with pytest.raises(ContextInvalid):
        context.cycle("reports", make, per=["acme"], value="the tenant", every="1h")
    run: Any = SlotRun("reports:1")
    with pytest.raises(ContextInvalid):
        start_per_value(app, run, make, None, "tenant", ["acme", ""])
    assert app.jobs.list("").items == ()
    app.close()
