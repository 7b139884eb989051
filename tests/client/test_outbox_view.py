"""The view `outbox`, under the names that people with an outbox table know."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Holdfast, Job
from holdfast.commands.health import read_health
from holdfast.settings import read_settings


@pytest.fixture
def failing(app: Holdfast, url: str) -> Holdfast:
    """An application on the prepared database whose job fails twice."""
    failing = Holdfast(url, hints=False)

    @failing.job("mail.send")
    def send(job: Job[Any]) -> None:
        if job.attempt < 3:
            raise ConnectionError(f"no mail server, try {job.attempt}")

    with failing.transaction() as tx:
        failing.start(tx, send)
    return failing


async def outbox(app: Holdfast, columns: str) -> list[tuple[Any, ...]]:
    """Read columns of the view, by type."""
    view = "holdfast.outbox" if app.database.url.startswith("postgres") else "holdfast_outbox"
    async with app.transaction() as tx:
        cursor = await tx.execute(f"select {columns} from {view} order by type")  # noqa: S608
        return [tuple(each) for each in await cursor.fetchall()]


def totals(app: Holdfast) -> tuple[int, int]:
    """Return how many jobs are live and how many completed, by the tally."""
    found = app.database.read(read_health(app.database.store)).totals
    return found.live, found.completed


async def run_tick(app: Holdfast) -> None:
    tick = app.assembly(read_settings({})).tick()
    await tick.run()
    await tick.close()


async def ticked(app: Holdfast) -> tuple[str, int, str | None]:
    """Run the job once more and read the view."""
    (chain,) = await app.aio.chains.list()
    async with app.transaction() as tx:
        await app.chains.trigger(tx, chain.id)
    await run_tick(app)
    ((status, attempts, error),) = await outbox(app, "status, attempts, last_error")
    return status, attempts, error


async def test_the_view_shows_the_last_error_while_it_retries(failing: Holdfast) -> None:
    for attempt in (1, 2):
        status, attempts, error = await ticked(failing)
        assert (status, attempts) == ("PENDING", attempt)
        assert error is not None
        assert f"ConnectionError: no mail server, try {attempt}" in error
    assert await ticked(failing) == ("SENT", 3, None)
    await failing.aclose()


async def test_an_event_stored_before_its_subscription_is_sent_when_its_handlers_ran(
    app: Holdfast, url: str
) -> None:
    async with app.transaction() as tx:
        (event,) = await app.publish(tx, "order.placed", 7)
    assert await outbox(app, "type, status") == [("order.placed", "PENDING")]
    assert totals(app) == (1, 0)

    later = Holdfast(url, hints=False)

    @later.on("order.placed")
    def mail(job: Job[Any]) -> None: ...

    @later.on("order.placed")
    def stock(job: Job[Any]) -> None: ...

    later.subscribe_handlers()
    deliveries = ["order.placed/mail", "order.placed/stock"]
    assert await outbox(app, "type, status") == [(each, "PENDING") for each in deliveries]
    assert totals(app) == (2, 0)
    assert (await app.aio.chains.get(event.id)).state == "completed"

    await run_tick(later)
    assert await outbox(app, "type, status") == [(each, "SENT") for each in deliveries]
    assert totals(app) == (0, 2)
    async with app.transaction() as tx:
        await app.chains.delete(tx, event.id)
    assert totals(app) == (0, 2)
    await later.aclose()
