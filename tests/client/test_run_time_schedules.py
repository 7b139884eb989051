"""Schedules in transactions of every kind of connection."""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

from holdfast import Holdfast
from holdfast_schedules import add_schedules
from tests.client.connection_types.held import Held
from tests.client.test_refusals import kinds


async def call(answer: Any) -> Any:
    return await answer if isawaitable(answer) else answer


@kinds()
async def test_schedules_are_there_after_a_commit(app: Holdfast, held: Held) -> None:
    schedules = add_schedules(app)
    await call(schedules.set(held.tx, "report:7", "report", 1, every="1h"))
    await call(schedules.pause(held.tx, "report:7", by="ana"))
    await call(schedules.run_now(held.tx, "report:7"))
    await call(schedules.set(held.tx, "report:8", "report", 1, cron="0 9 * * *"))
    await call(schedules.delete(held.tx, "report:8"))
    await held.commit()
    (found,) = schedules.list()
    assert (found.name, found.paused_by) == ("report:7", "ana")
    assert [each.job_id for each in schedules.history("report:7")] == [app.jobs.list()[0].id]


@kinds()
async def test_schedules_are_as_they_were_after_a_rollback(app: Holdfast, held: Held) -> None:
    schedules = add_schedules(app)
    await call(schedules.set(held.tx, "report:7", "report", 1, every="1h"))
    await call(schedules.run_now(held.tx, "report:7"))
    await held.rollback()
    assert schedules.list() == []
    assert len(app.jobs.list()) == 0
