"""A privilege that a role lacks is told as such, not as a database that cannot be reached."""

import asyncio
from collections.abc import Iterator

import httpx
import psycopg
import pytest
from psycopg import sql

from holdfast import Holdfast, Job
from holdfast.core.events import event
from holdfast.observe.metrics import DATABASE_REFUSED, measure
from holdfast.settings import read_settings
from holdfast.web.app import create
from holdfast.worker.options import WorkerOptions
from tests.storage.roles import LimitedRole, limited_role
from tests.worker.event_log import EventLog

GRANT = "grant select, insert, update, delete on all tables in schema holdfast to {}"


@pytest.fixture
def role(postgres_url: str) -> Iterator[LimitedRole]:
    """A role that may do everything but what a test takes from it."""
    app = Holdfast(postgres_url)
    app.migrate()
    app.close()
    with limited_role(postgres_url, 30) as role:
        execute(role, GRANT)
        yield role


def execute(role: LimitedRole, statement: str) -> None:
    with psycopg.connect(role.owner_url, autocommit=True) as owner:
        owner.execute(sql.SQL(statement).format(sql.Identifier(role.name)))


async def test_a_loop_that_is_refused_says_which_privilege_of_which_role_is_missing(
    role: LimitedRole,
) -> None:
    execute(role, "revoke update on holdfast.queue from {}")
    app = Holdfast(role.url)

    @app.job("work")
    def work(job: Job[None]) -> None: ...

    events = EventLog()
    app.observe(events)
    worker = app.make_worker(WorkerOptions())
    running = asyncio.create_task(worker.run())
    await events.seen("database_refused", purpose="claim")
    assert worker.last_error is not None
    assert f"permission denied for table queue for role {role.name}" in worker.last_error
    assert "HF046" in worker.last_error
    execute(role, "grant update on holdfast.queue to {}")
    await events.seen("database_back", purpose="claim")
    worker.stop()
    await running
    assert not events.of("database_unreachable")
    await app.aclose()


async def test_the_probe_says_what_is_missing(role: LimitedRole) -> None:
    execute(role, "revoke select on holdfast.worker from {}")
    app = Holdfast(role.url)
    served = create(app=app, settings=read_settings({}))
    transport = httpx.ASGITransport(served, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answer = await client.get("/readyz")
    assert answer.status_code == 503
    reason = answer.json()["reason"]
    assert f"permission denied for table worker for role {role.name}" in reason
    assert "holdfast explain HF046" in reason
    await app.aclose()


def test_the_metric_counts_loops_that_are_refused() -> None:
    refused = event("database_refused", worker="w", purpose="claim", error="no")
    (found,) = measure(refused, 0.0)
    assert (found.metric, found.value) == (DATABASE_REFUSED, 1)
