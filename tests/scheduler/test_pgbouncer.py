"""Behind a real PgBouncer in transaction mode, where no two statements need to meet the same server session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from holdfast import Holdfast, Job
from holdfast.commands.cycles import request_cycle
from holdfast.commands.explain import look_around, why
from holdfast.core.errors import DatabaseUnreachable
from holdfast.scheduler.cycle_run import CycleRun
from holdfast.scheduler.doctor.checks import run_checks
from holdfast.settings import load_settings, read_settings
from holdfast.storage.id_generator import new_id
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.worker.options import WorkerOptions
from tests.support.pgbouncer import newer_pgbouncer, pooled


@pytest.fixture
def pooled_url(postgres_url: str) -> Iterator[str]:
    with pooled(postgres_url) as url:
        yield url


@pytest_asyncio.fixture
async def app(
    postgres_url: str, pooled_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Holdfast]:
    """An application behind the pooler that listens on the server's own address."""
    monkeypatch.setenv("HOLDFAST_LISTEN_URL", postgres_url)
    app = Holdfast(pooled_url)
    yield app
    await app.aclose()


async def test_jobs_are_started_and_drained_by_two_workers(app: Holdfast) -> None:
    @app.job("report")
    async def report(job: Job[int]) -> int:
        async with job.complete() as done:
            cursor = await done.tx.execute("select %s::int * 2", [job.input])
            return int((await cursor.fetchone())[0])

    async with app.transaction() as tx:
        chains = await app.start_many(tx, report, range(300))
    options = WorkerOptions(stop_when_idle=True, slots=5)
    await asyncio.gather(*(app.make_worker(options).run() for _ in range(2)))
    found = [await app.aio.chains.get(each.id) for each in chains[:20]]
    assert [each.output for each in found] == [each * 2 for each in range(20)]
    totals, _ = await app.database.read_async(app.database.store.workers.totals(1000))
    assert (totals.completed, totals.live) == (300, 0)


async def test_hints_arrive_on_the_direct_address(app: Holdfast) -> None:
    started = asyncio.Event()

    @app.job("report")
    async def report(job: Job[Any]) -> None:
        started.set()

    assert await asyncio.to_thread(app.notifier.listen(lambda hint: None).wait_until_alive, 60)
    worker = app.make_worker(
        WorkerOptions(poll_ms=600_000, idle_min_ms=600_000, idle_max_ms=600_000)
    )
    running = asyncio.create_task(worker.run())
    async with app.transaction() as tx:
        await app.start(tx, report)
    async with asyncio.timeout(60):
        await started.wait()
    worker.stop()
    await running


async def test_a_sentence_says_why_a_job_waits(app: Holdfast) -> None:
    app.declare("report")
    async with app.transaction() as tx:
        chain = await app.start(tx, "report")
    store = app.database.store
    (record,) = await app.database.read_async(store.jobs.get([str(chain.id)]))
    around = await app.database.read_async(look_around(store, record))
    assert why(record, around) == "No live worker handles report"


async def test_a_cycle_s_lock_holds_between_two_replicas(app: Holdfast) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    @app.cycle("cleanup", every="1h")
    async def cleanup(run: CycleRun) -> None:
        inside.set()
        await go_on.wait()
        async with run.transaction() as tx:
            await tx.execute("select 1")
        ran.append(run.key)

    ticks = [app.assembly(load_settings()).tick() for _ in range(2)]
    for each in ticks:
        await each.run()
    await app.database.run_async(request_cycle(app.database.store, "cleanup", new_id()))
    first = asyncio.create_task(ticks[0].run())
    async with asyncio.timeout(60):
        await inside.wait()
    summary = await ticks[1].run()
    assert summary.runner_results["cleanup"].processed == 0
    assert not await app.database.singleton("worker:scheduler:cleanup").acquire()
    go_on.set()
    await first
    assert len(ran) == 1
    for each in ticks:
        await each.close()


async def test_the_doctor_points_at_a_listener_behind_the_pooler(
    app: Holdfast, postgres_url: str
) -> None:
    async def found(**environ: str) -> str:
        findings = await run_checks(app.database, read_settings(environ))
        return next(each.verdict for each in findings if each.check == "pooler")

    assert await found() == "warning"
    assert await found(HOLDFAST_LISTEN_URL=postgres_url) == "ok"


async def test_a_pooler_that_refuses_our_options_is_told_how_to_let_them_pass(
    postgres_url: str,
) -> None:
    with pooled(postgres_url, ignore_options=False) as url:
        app = Holdfast(url)
        with pytest.raises(DatabaseUnreachable) as caught:
            app.database.check()
        app.close()
    assert "ignore_startup_parameters = options" in str(caught.value.help)


async def test_no_session_of_the_server_is_left_changed(
    app: Holdfast, postgres_url: str, pooled_url: str
) -> None:
    @app.job("report")
    async def report(job: Job[Any]) -> None: ...

    async with app.transaction() as tx:
        await app.start_many(tx, report, range(50))
    await app.make_worker(WorkerOptions(stop_when_idle=True)).run()
    lock = app.database.singleton("worker:scheduler:test")
    assert await lock.acquire()
    await lock.release()
    with psycopg.connect(pooled_url, prepare_threshold=None) as connection:
        for setting in ("idle_in_transaction_session_timeout", "statement_timeout"):
            row = connection.execute("select current_setting(%s)", [setting]).fetchone()
            assert row == ("0",)
        prepared = connection.execute("select count(*) from pg_prepared_statements").fetchone()
        assert prepared == (0,)


WATCH_PLANNER = """
create table public.planner (settings text primary key);
create function public.note_planner() returns trigger language plpgsql as $$
begin
  insert into public.planner
  select string_agg(name || '=' || setting, ' ' order by name) from pg_settings
   where name in ('enable_bitmapscan', 'enable_seqscan', 'jit', 'plan_cache_mode')
  on conflict do nothing;
  return null;
end $$;
create trigger note_planner after update on holdfast.queue execute function public.note_planner();
"""


@pytest.mark.parametrize("version", ["installed", "newer"])
async def test_a_claim_is_planned_behind_the_pooler_as_it_is_on_a_direct_connection(
    postgres_url: str, version: str
) -> None:
    binary = newer_pgbouncer() if version == "newer" else None
    with psycopg.connect(postgres_url, autocommit=True) as direct:
        direct.execute(WATCH_PLANNER)
        try:
            with pooled(postgres_url, binary=binary) as url:
                await drain(url)
            rows = direct.execute("select settings from public.planner").fetchall()
        finally:
            direct.execute("drop trigger note_planner on holdfast.queue")
            direct.execute("drop function public.note_planner")
    expected = "enable_bitmapscan=off enable_seqscan=off jit=off plan_cache_mode=force_generic_plan"
    assert (expected,) in rows


@pytest.mark.parametrize(("prepares", "expected"), [("true", True), ("false", False)])
async def test_workers_prepare_through_a_pooler_that_keeps_prepared_statements_if_they_are_told_to(
    postgres_url: str, prepares: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_PREPARE_POOLED", prepares)
    more = "max_prepared_statements = 200"
    with pooled(postgres_url, binary=newer_pgbouncer(), more=more) as url:
        await drain(url)
        with psycopg.connect(url, prepare_threshold=None) as connection:
            row = connection.execute("select count(*) > 0 from pg_prepared_statements").fetchone()
    assert row == (expected,)


def test_the_schema_is_applied_through_a_pooler_that_resets_sessions_after_each_transaction(
    postgres_url: str,
) -> None:
    with pooled(postgres_url, more="server_reset_query_always = 1") as url:
        applied = PostgresDatabase(url, "another").migrate()
        assert PostgresDatabase(url, "another").check() == applied


async def drain(url: str, jobs: int = 60) -> None:
    """Start jobs and run them all in a worker."""
    app = Holdfast(url, hints=False)

    @app.job("report")
    async def report(job: Job[int]) -> None: ...

    async with app.transaction() as tx:
        await app.start_many(tx, report, range(jobs))
    await app.make_worker(WorkerOptions(stop_when_idle=True)).run()
    totals, _ = await app.database.read_async(app.database.store.workers.totals(1000))
    await app.aclose()
    assert (totals.completed, totals.live) == (jobs, 0)
