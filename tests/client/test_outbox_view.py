"""The view `outbox`, under the names that people with an outbox table know."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Holdfast, Job
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


async def ticked(app: Holdfast) -> tuple[str, int, str | None]:
    """Run the job once more and read the view."""
    (chain,) = await app.aio.chains.list()
    async with app.transaction() as tx:
        await app.chains.trigger(tx, chain.id)
    tick = app.assembly(read_settings({})).tick()
    await tick.run()
    await tick.close()
    view = "holdfast.outbox" if app.database.url.startswith("postgres") else "holdfast_outbox"
    async with app.transaction() as tx:
        cursor = await tx.execute(f"select status, attempts, last_error from {view}")  # noqa: S608
        (row,) = await cursor.fetchall()
    return tuple(row)


async def test_the_view_shows_the_last_error_while_it_retries(failing: Holdfast) -> None:
    for attempt in (1, 2):
        status, attempts, error = await ticked(failing)
        assert (status, attempts) == ("PENDING", attempt)
        assert error is not None
        assert f"ConnectionError: no mail server, try {attempt}" in error
    assert await ticked(failing) == ("SENT", 3, None)
    await failing.aclose()
