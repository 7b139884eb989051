"""Every setting, turned from its default to another value, with a different effect in the real thing.

The cases come from the table of settings: one without an observation here fails. What is looked at is what happens:
in a database, in a tick, worker or loop that runs as the environment says, or in the command as a process.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, TypeAlias

import httpx
import psycopg
import pytest

from holdfast import Holdfast, Job
from holdfast.core.errors import DatabaseUnreachable, HoldfastError
from holdfast.core.instants import Instant
from holdfast.core.records import Claim, LeaseClass, NewJob, Probe
from holdfast.notify.base import Hint
from holdfast.scheduler import maintenance
from holdfast.scheduler.background import Background
from holdfast.scheduler.cycle_run import CycleRun
from holdfast.scheduler.runner import RunnerContext, RunnerReport, TickSummary
from holdfast.settings import load_settings
from holdfast.settings.load import variables
from holdfast.storage.id_generator import new_id
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.web.app import create
from holdfast.worker.clock import SystemClock
from holdfast_archive import add_archive
from holdfast_calls import ServiceClient, ServiceGuard
from holdfast_schedules import add_schedules
from holdfast_schedules.schedule_runner import ScheduleRunner
from holdfast_streams import StreamEvent, add_streams
from holdfast_streams.reader_store import LINES, READERS
from tests.client.conftest import Heard
from tests.scheduler.ticks import FunctionRunner
from tests.support.pgbouncer import pooled
from tests.support.until import PATIENCE_S, breath, until

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
FIRST = "00000000-0000-0000-0000-000000000000"
VARIABLES = list(variables())
MAIL = "order.placed/mail"


@dataclass
class Place:
    """Where one look is taken: a directory and a database of its own, and the environment as it is set."""

    path: Path
    postgres_url: Callable[[], str]
    monkeypatch: pytest.MonkeyPatch
    seen: list[Any] = field(default_factory=list)
    opened: list[Holdfast] = field(default_factory=list)

    @property
    def url(self) -> str:
        """A file of this look's own."""
        return f"sqlite:///{self.path}/jobs.db"

    def open(self, *url: str, **options: Any) -> Holdfast:
        """An application of nothing yet, closed after the look."""
        self.opened.append(Holdfast(*url, **options))
        return self.opened[-1]

    async def close(self) -> None:
        """Close what was opened."""
        for each in self.opened:
            await each.aclose()

    def app(self, **options: Any) -> Holdfast:
        """An application whose job and whose subscriber fail, and with a cycle."""
        app = self.open(self.url, **options)

        @app.job("charge")
        async def charge(job: Job[Any]) -> None:
            raise ValueError("no")

        @app.on("order.placed", name="mail")
        async def mail(job: Job[Any]) -> None:
            raise ValueError("no")

        @app.cycle("bill", cron="17 3 * * *", sharded=True)
        async def bill(run: CycleRun) -> None:
            self.seen.append((run.shard.index, run.shard.count))

        app.migrate()
        return app

    async def tick(
        self, app: Holdfast, *runners: FunctionRunner, late_us: Instant = 0
    ) -> TickSummary:
        """Run a tick as the environment says, so much later than now."""
        assembly = replace(app.assembly(load_settings()), runners=runners)
        if late_us:
            now = app.database.read(app.database.store.schema.clock()) + late_us
            assembly = replace(assembly, now=lambda: now)
        tick = assembly.tick()
        try:
            return await tick.run()
        finally:
            await tick.close()

    @asynccontextmanager
    async def working(self, app: Holdfast) -> AsyncIterator[Background]:
        """Run the background mode as the environment says."""
        background = app.assembly(load_settings()).background()
        running = asyncio.create_task(background.run())
        try:
            yield background
        finally:
            background.stop()
            await running


Look: TypeAlias = Callable[[Place], Awaitable[Any]]


@dataclass(frozen=True)
class Observation:
    """How a setting is turned, where it is looked at, and what is seen with and without it."""

    look: Look
    turned: str
    before: Any
    after: Any
    beside: Mapping[str, str] = field(default_factory=dict)
    """What is set in both cases."""


OBSERVATIONS: dict[str, Observation] = {}


def seen(name: str, turned: str, before: Any, after: Any, **beside: str) -> Callable[[Look], Look]:
    """Say that a look observes a setting."""

    def say(look: Look) -> Look:
        OBSERVATIONS[name] = Observation(look, turned, before, after, beside)
        return look

    return say


@pytest.mark.parametrize("name", VARIABLES)
async def test_a_setting_has_an_effect(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert name in OBSERVATIONS, f"{name} is accepted; what does it do? Observe it here"
    found = OBSERVATIONS[name]
    assert found.before != found.after
    results = []
    for place, environ in (("before", {}), ("after", {name: found.turned})):
        path = tmp_path / place
        path.mkdir()
        monkeypatch.chdir(path)
        with monkeypatch.context() as patch:
            for each in VARIABLES:
                patch.delenv(each, raising=False)
            for each, value in {**found.beside, **environ}.items():
                patch.setenv(each, value)
            made = Place(path, lambda: str(request.getfixturevalue("postgres_url")), patch)
            try:
                results.append(await found.look(made))
            finally:
                await made.close()
    assert results == [found.before, found.after]


def test_nothing_is_observed_that_is_no_setting() -> None:
    assert OBSERVATIONS.keys() <= set(VARIABLES)


# The database and how it is opened.


@seen("HOLDFAST_URL", "sqlite:///shop.db", "holdfast.db", "shop.db")
async def database_file(place: Place) -> Any:
    place.open().migrate()
    (found,) = place.path.glob("*.db")
    return found.name


@seen("HOLDFAST_SEAL_KEYS", f"a:{'A' * 43}=", "HF120", "sealed")
async def sealed_start(place: Place) -> Any:
    app = place.open()
    app.migrate()
    app.declare("letter", sealed=True)
    try:
        with app.transaction() as tx:
            app.start(tx, "letter", "Dear Ana")
            (stored,) = tx.execute("select input from holdfast_job").fetchone()
    except HoldfastError as error:
        return error.code
    return "in clear" if "Ana" in stored else "sealed"


@seen("HOLDFAST_ENVIRONMENT", "staging", None, "staging")
async def environment(place: Place) -> Any:
    url = place.postgres_url()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("delete from holdfast.identity")
    place.open(url).migrate()
    with psycopg.connect(url) as connection:
        return connection.execute("select environment from holdfast.identity").fetchall()[0][0]


@seen("HOLDFAST_SCHEMA", "shop", ["holdfast"], ["shop"])
async def tables(place: Place) -> Any:
    url = place.postgres_url()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("drop schema if exists holdfast cascade")
    place.open(url).migrate()
    with psycopg.connect(url) as connection:
        rows = connection.execute("select schemaname from pg_tables where tablename = 'queue'")
        return [name for (name,) in rows]


@seen("HOLDFAST_CONFIG", "other.toml", 2, 1)
@seen("HOLDFAST_SYNCHRONOUS", "NORMAL", 2, 1)
async def synchronous(place: Place) -> Any:
    (place.path / "other.toml").write_text('synchronous = "NORMAL"')
    app = place.app()
    with app.transaction() as tx:
        (found,) = tx.execute("pragma synchronous").fetchone()
    return found


async def is_heard(app: Holdfast, tries: int) -> str:
    """Whether a listener hears of jobs that are started."""
    app.migrate()
    heard = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hear(hint: Hint) -> None:
        loop.call_soon_threadsafe(heard.set)

    listener = await asyncio.to_thread(app.notifier.listen, hear)
    try:
        for _ in range(tries):
            async with app.transaction() as tx:
                await app.start(tx, "x")
            try:
                await asyncio.wait_for(heard.wait(), 0.1)
                return "heard"
            except TimeoutError:
                continue
        return "deaf"
    finally:
        await asyncio.to_thread(listener.close)


@seen("HOLDFAST_NOTIFIER", "none", "heard", "deaf")
async def notifier(place: Place) -> Any:
    tries = 100 if load_settings().holdfast.notifier is None else 10
    return await is_heard(place.open(place.url, open_types=True), tries)


@seen("HOLDFAST_LISTEN_URL", "postgresql://127.0.0.1:1/nowhere", "heard", "deaf")
async def listening(place: Place) -> Any:
    tries = 100 if load_settings().holdfast.listen_url is None else 10
    return await is_heard(place.open(place.postgres_url(), open_types=True), tries)


@seen("HOLDFAST_HINTS", "false", ["order.charge"], [])
async def hints(place: Place) -> Any:
    heard = Heard()
    app = place.app(notifier=heard, open_types=True)
    with app.transaction() as tx:
        app.start(tx, "order.charge")
    return heard.types


@seen("HOLDFAST_CONNECTIONS", "1", "two", "one")
async def connections(place: Place) -> Any:
    place.monkeypatch.setattr("holdfast.storage.postgres.pool.WAIT_S", 0.2)
    app = place.open(place.postgres_url())
    with app.transaction() as tx:
        tx.execute("select 1")
        try:
            with app.transaction() as other:
                other.execute("select 1")
        except DatabaseUnreachable:
            return "one"
        return "two"


@seen("HOLDFAST_PREPARE", "false", True, False)
async def prepared(place: Place) -> Any:
    app = place.open(place.postgres_url(), open_types=True)
    app.migrate()
    with app.transaction() as tx:
        for _ in range(8):
            app.start(tx, "report")
        (count,) = tx.execute("select count(*) from pg_prepared_statements").fetchone()
    return count > 0


@seen("HOLDFAST_PREPARE_POOLED", "true", None, 2)
async def prepared_behind_a_pooler(place: Place) -> Any:
    with pooled(place.postgres_url()) as url:
        database = place.open(url).database
        assert isinstance(database, PostgresDatabase)
        link = database.link("claim")
        await link.run(database.store.schema.clock())
        assert link._connection is not None
        after = link._connection.prepare_threshold
        await link.close()
    return after


# A worker and what it does.


@seen("HOLDFAST_WORKER_NAME", "mailer", "worker", "mailer")
async def worker_name(place: Place) -> Any:
    app = place.app()
    await place.tick(app)
    async with app.transaction() as tx:
        cursor = await tx.execute("select distinct name from holdfast_worker")
        ((found,),) = await cursor.fetchall()
    return found


@seen("OUTBOX_CONCURRENCY", "2", 10, 2)
@seen("HOLDFAST_SLOTS", "3", 10, 3)
async def handlers_at_once(place: Place) -> Any:
    app = place.open(place.url)
    running, peak = 0, 0

    @app.job("slow")
    async def slow(job: Job[Any]) -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        # Every slot that is free begins meanwhile.
        await asyncio.sleep(0.2)
        running -= 1

    app.migrate()
    with app.transaction() as tx:
        app.start_many(tx, slow, range(12))
    await place.tick(app)
    return peak


PROGRAM = """
from holdfast import Holdfast, Job
app = Holdfast()

@app.job("quick")
async def quick(job: Job[dict]) -> None: ...
"""


@seen("HOLDFAST_PROCESSES", "2", 1, 2)
async def processes(place: Place) -> Any:
    (place.path / "shop.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "holdfast"]
    await asyncio.to_thread(subprocess.run, [*command, "migrate"], check=True, capture_output=True)
    await asyncio.to_thread(
        subprocess.run,
        [*command, "worker", "shop:app", "--drain"],
        check=True,
        capture_output=True,
        timeout=100,
    )
    app = place.open()
    found = app.workers.list(everyone=True)
    return len(found)


LOOP = """
import asyncio
from holdfast import Holdfast, Job
app = Holdfast()

@app.job("loop")
async def loop(job: Job[None]) -> str:
    return type(asyncio.get_running_loop()).__module__.split(".")[0]
"""


@seen("HOLDFAST_UVLOOP", "false", "uvloop", "asyncio")
async def event_loop(place: Place) -> Any:
    (place.path / "shop.py").write_text(LOOP)
    app = place.open(open_types=True)
    app.migrate()
    with app.transaction() as tx:
        chain = app.start(tx, "loop")
    words = [sys.executable, "-m", "holdfast", "worker", "shop:app", "--drain"]
    await asyncio.to_thread(
        subprocess.run, words, check=True, capture_output=True, timeout=PATIENCE_S
    )
    return app.jobs.get(chain.id).output


@seen("OUTBOX_BATCH_SIZE", "2", False, True)
async def claims_are_small(place: Place) -> Any:
    app = place.open(place.url)

    @app.job("quick")
    async def quick(job: Job[Any]) -> None: ...

    app.migrate()
    with app.transaction() as tx:
        app.start_many(tx, quick, range(40))
    claims = watch_claims(place, app)
    await place.tick(app)
    return max(limit for _, limit in claims) <= 2


def app_of_leases(place: Place) -> Holdfast:
    """An application with a job that sees how long its lease lasts, to half a minute."""
    app = place.open(place.url)

    @app.job("look")
    async def look(job: Job[Any]) -> None:
        found = await app.aio.jobs.get(job.id)
        assert found.lease_expires_at is not None
        left = (found.lease_expires_at - datetime.now(UTC)).total_seconds()
        place.seen.append(round(left / 30) * 30)

    app.migrate()
    with app.transaction() as tx:
        app.start(tx, look)
    return app


@seen("OUTBOX_LEASE_DURATION_MS", "30000", 60, 30)
async def lease_s(place: Place) -> Any:
    await place.tick(app_of_leases(place))
    return place.seen[0]


async def reaches(count: Callable[[], int], wanted: int, within_s: float = 3.0) -> bool:
    """Whether something is counted so often within a few seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while count() < wanted:
                await breath()
    return count() >= wanted


@seen("OUTBOX_LEASE_HEARTBEAT_MS", "100", False, True)
async def beats_often(place: Place) -> Any:
    async with place.working(place.app()) as background:
        return await reaches(lambda: background.worker.counters.heartbeats, 4)


@seen("OUTBOX_REAPER_INTERVAL_MS", "100", False, True)
async def reaps_often(place: Place) -> Any:
    async with place.working(place.app()) as background:
        return await reaches(lambda: background.worker.counters.reaper_runs, 4)


def watch_claims(place: Place, app: Holdfast) -> list[tuple[float, int]]:
    """When claims are made from now on, and for how many jobs each."""
    jobs = type(app.database.store.jobs)
    claims: list[tuple[float, int]] = []
    claim = jobs.claim

    def watched(self: Any, wanted: Claim, *more: Any, **named: Any) -> Any:
        claims.append((time.monotonic(), wanted.limit))
        return claim(self, wanted, *more, **named)

    place.monkeypatch.setattr(jobs, "claim", watched)
    return claims


@seen("HOLDFAST_POLL_MS", "50", False, True, WORKER_IDLE_BACKOFF_MAX_MS="1000")
async def polls_often(place: Place) -> Any:
    app = place.app()
    claims = watch_claims(place, app)
    async with place.working(app):
        # At first it pauses as without hints, a second at a time; the setting counts once hints are proven alive.
        return await reaches(lambda: len(claims), 12, 6)


@seen("HOLDFAST_NEXT_JOB_DELAY_MS", "300", False, True, OUTBOX_BATCH_SIZE="1", HOLDFAST_SLOTS="1")
async def pauses_between_jobs(place: Place) -> Any:
    app = place.open(place.url)

    @app.job("quick")
    async def quick(job: Job[Any]) -> None:
        pass

    app.migrate()
    with app.transaction() as tx:
        app.start_many(tx, quick, range(6))
    claims = watch_claims(place, app)
    await place.tick(app)
    # Claims, not handlers: those begin a little after their claim, one more so than the next.
    return min(later - earlier for (earlier, _), (later, _) in pairwise(claims)) >= 0.3


WATCH_CLAIMS = """
create table if not exists commit_level (level text);
truncate commit_level;
create or replace function note_commit_level() returns trigger language plpgsql as
  'begin insert into commit_level values (current_setting(''synchronous_commit'')); return null; end';
create or replace trigger note_commit_level after insert on holdfast.lease
  for each row execute function note_commit_level();
"""


@seen("HOLDFAST_CLAIMS", "durable", "off", "on")
async def commit_of_a_claim(place: Place) -> Any:
    url = place.postgres_url()
    app = place.open(url)

    @app.job("quick")
    async def quick(job: Job[Any]) -> None: ...

    app.migrate()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(WATCH_CLAIMS)
        with app.transaction() as tx:
            app.start(tx, quick)
        await place.tick(app)
        ((level,),) = connection.execute("select distinct level from commit_level").fetchall()
        # The database goes on to other tests, without its tables that are not ours.
        connection.execute("drop function note_commit_level cascade; drop table commit_level")
    return level


@seen("HOLDFAST_STATEMENT_TIMEOUT_MS", "200", "waits", "gives up")
async def locked_table(place: Place) -> Any:
    url = place.postgres_url()
    app = place.open(url)
    app.migrate()
    with psycopg.connect(url) as blocking:
        blocking.execute("lock table holdfast.worker_runs in access exclusive mode")
        ticking = asyncio.create_task(place.tick(app))
        _, waiting = await asyncio.wait([ticking], timeout=4)
        blocking.rollback()
    (result,) = await asyncio.gather(ticking, return_exceptions=True)
    return "waits" if waiting and isinstance(result, TickSummary) else "gives up"


@seen("WORKER_SHUTDOWN_TIMEOUT_MS", "300", "finished", "aborted")
async def shutdown(place: Place) -> Any:
    app = place.open(place.url)
    began, go_on = asyncio.Event(), asyncio.Event()

    @app.job("slow")
    async def slow(job: Job[Any]) -> None:
        began.set()
        try:
            await asyncio.wait_for(go_on.wait(), 60)
            place.seen.append("finished")
        except asyncio.CancelledError:
            place.seen.append("aborted")
            raise

    app.migrate()
    with app.transaction() as tx:
        app.start(tx, slow)
    async with place.working(app) as background:
        await began.wait()
        background.stop()
        await reaches(lambda: len(place.seen), 1)
        go_on.set()
    return place.seen[0]


# Attempts and the pauses between them.


async def states(place: Place) -> Mapping[str, str]:
    app = place.app()
    with app.transaction() as tx:
        app.start(tx, "charge")
        app.publish(tx, "order.placed")
    await place.tick(app)
    return {each.type: each.state for each in await app.aio.jobs.list()}


@seen("OUTBOX_MAX_ATTEMPTS", "1", "pending", "failed")
async def events_fail(place: Place) -> Any:
    return (await states(place))[MAIL]


@seen("HOLDFAST_MAX_ATTEMPTS", "1", "pending", "failed")
async def jobs_fail(place: Place) -> Any:
    return (await states(place))["charge"]


async def pauses(place: Place, type: str, *, embedded: bool = False) -> list[int]:
    """How many seconds two failed attempts wait for the next, as a worker wrote it."""
    app = place.app()
    with app.transaction() as tx:
        app.start(tx, "charge")
        app.publish(tx, "order.placed")
    (chain,) = await app.aio.chains.list(f"type:{type}")
    found = []
    for attempt in (1, 2):
        if embedded:
            async with app.worker():
                await reaches(lambda: len(app.jobs.attempts(chain.id)), attempt, 30)
        else:
            await place.tick(app)
        job = await app.aio.jobs.get(chain.id)
        ended = (await app.aio.jobs.attempts(chain.id))[-1].ended_at
        assert job.available_at is not None
        found.append(int((job.available_at - ended).total_seconds() + 0.01))
        async with app.transaction() as tx:
            await app.chains.trigger(tx, chain.id)
    return found


@seen("OUTBOX_RETRY_BASE_MS", "7000", [5, 10], [7, 14])
@seen("OUTBOX_RETRY_MAX_MS", "8000", [5, 10], [5, 8])
async def event_pauses(place: Place) -> Any:
    return await pauses(place, MAIL)


@seen("OUTBOX_RETRY_JITTER_MS", "3600000", False, True)
async def event_jitter(place: Place) -> Any:
    # An hour of jitter leaves one in seven thousand below half a second.
    return (await pauses(place, MAIL))[0] > 5


@seen("HOLDFAST_RETRY_BASE_MS", "7000", [10, 20], [7, 14])
@seen("HOLDFAST_RETRY_MAX_MS", "12000", [10, 20], [10, 12])
async def job_pauses(place: Place) -> Any:
    return await pauses(place, "charge")


@seen("OUTBOX_WORKER_RETRY_BASE_MS", "7000", [5, 10], [7, 14], OUTBOX_WORKER_ENABLED="true")
@seen("OUTBOX_WORKER_RETRY_MAX_MS", "8000", [5, 10], [5, 8], OUTBOX_WORKER_ENABLED="true")
async def embedded_pauses(place: Place) -> Any:
    return await pauses(place, MAIL, embedded=True)


# The worker inside a web application.


@seen("OUTBOX_WORKER_ENABLED", "true", False, True)
async def is_embedded(place: Place) -> Any:
    app = place.app()
    async with app.worker() as worker:
        return worker.is_running


@seen(
    "OUTBOX_WORKER_POLL_MS",
    "10",
    False,
    True,
    OUTBOX_WORKER_ENABLED="true",
    HOLDFAST_NOTIFIER="none",
    WORKER_IDLE_BACKOFF_JITTER_MS="0",
)
async def embedded_polls_often(place: Place) -> Any:
    app = place.app()
    claims = watch_claims(place, app)
    async with app.worker():
        await reaches(lambda: len(claims), 4, 30)
    return min(later - earlier for (earlier, _), (later, _) in pairwise(claims)) < 0.5


@seen("OUTBOX_WORKER_BATCH_SIZE", "4", False, True, OUTBOX_WORKER_ENABLED="true")
async def embedded_claims_are_small(place: Place) -> Any:
    app = place.app()
    claims = watch_claims(place, app)
    async with app.worker():
        await reaches(lambda: len(claims), 1, 30)
    return max(limit for _, limit in claims) <= 4


@seen("OUTBOX_WORKER_MAX_ATTEMPTS", "1", "pending", "failed", OUTBOX_WORKER_ENABLED="true")
async def embedded_attempts(place: Place) -> Any:
    app = place.app()
    with app.transaction() as tx:
        app.publish(tx, "order.placed")
    (chain,) = await app.aio.chains.list()
    async with app.worker():
        await reaches(lambda: len(app.jobs.attempts(chain.id)), 1, 30)
    return (await app.aio.jobs.get(chain.id)).state


@seen("OUTBOX_WORKER_PROCESSING_TIMEOUT_MS", "30000", 60, 30, OUTBOX_WORKER_ENABLED="true")
async def embedded_lease_s(place: Place) -> Any:
    app = app_of_leases(place)
    async with app.worker():
        await reaches(lambda: len(place.seen), 1, 30)
    return place.seen[0]


# Ticks and the loop that repeats them.


@seen(
    "WORKER_TICK_RUNNERS",
    "retention",
    ["reaper", "outbox", "bill", "retention"],
    ["reaper", "retention"],
)
async def runners(place: Place) -> Any:
    app = place.app()
    summary = await place.tick(app)
    return list(summary.runner_results)


async def _dawdle(context: RunnerContext) -> RunnerReport:
    """Take longer than the budgets below, which are in real time."""
    await asyncio.sleep(0.5)
    return RunnerReport()


@seen("WORKER_TICK_RUNNER_MAX_MS", "50", False, True)
async def has_failed(place: Place) -> Any:
    app = place.app()
    summary = await place.tick(app, FunctionRunner("mine", _dawdle))
    # On a busy machine others may take that long, too.
    return "mine" in summary.failed_runners


@seen("WORKER_TICK_OVERALL_MAX_MS", "200", None, "tick_budget_spent")
async def left_out(place: Place) -> Any:
    app = place.app()
    summary = await place.tick(app, FunctionRunner("mine", _dawdle))
    return summary.runner_results["retention"].note


@seen("WORKER_TICK_RUNNER_MAX_ITEMS", "3", 10, 3)
async def items(place: Place) -> Any:
    app = place.open(place.url)

    @app.job("quick")
    async def quick(job: Job[Any]) -> None: ...

    app.migrate()
    with app.transaction() as tx:
        app.start_many(tx, quick, range(10))
    summary = await place.tick(app)
    return summary.runner_results["outbox"].processed


@seen("WORKER_TICK_SHARD_INDEX", "1", (0, 2), (1, 2), WORKER_TICK_SHARD_COUNT="2")
@seen("WORKER_TICK_SHARD_COUNT", "3", (0, 2), (0, 3), WORKER_TICK_SHARD_INDEX="0")
async def shard(place: Place) -> Any:
    for name, usual in (("INDEX", "0"), ("COUNT", "2")):
        # One without the other is refused, so what is not turned has a value too.
        if f"WORKER_TICK_SHARD_{name}" not in os.environ:
            place.monkeypatch.setenv(f"WORKER_TICK_SHARD_{name}", usual)
    app = place.app()
    await place.tick(app)
    with app.transaction() as tx:
        for each in app.cycles.list():
            app.cycles.run_now(tx, each.name)
    await place.tick(app)
    return place.seen[-1]


@seen("WORKER_TIME_ZONE", "Asia/Tokyo", "UTC", "Asia/Tokyo")
async def zone(place: Place) -> Any:
    app = place.app()
    await place.tick(app)
    (found,) = await app.aio.cycles.list()
    return found.zone


class LoopClock(SystemClock):
    """A clock by which the loop's pauses are written down instead of waited for."""

    def __init__(self, random: float) -> None:
        self.pauses: list[float] = []
        self.loop_event: asyncio.Event | None = None
        self._random = random

    def random(self) -> float:
        return self._random

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        if event is not self.loop_event or seconds is None:
            return await super().wait(event, seconds)
        self.pauses.append(seconds)
        await asyncio.sleep(0)
        return event.is_set()


async def pace(
    place: Place, random: float, ticks: int = 1, processed: int = 0, fails: bool = False
) -> float:
    """The pause after some ticks, of the loop that polls, or of a runner's own after work."""

    async def work(context: RunnerContext) -> RunnerReport:
        return RunnerReport(processed=processed)

    app = place.app()
    clock = LoopClock(random)
    assembly = replace(app.assembly(load_settings()), clock=clock)
    background = replace(assembly, runners=[FunctionRunner("mine", work)]).background()
    clock.loop_event = background._loops[-1 if processed else 0]._wake
    if fails:
        with app.transaction() as tx:
            tx.execute("drop table holdfast_worker_runs")
    running = asyncio.create_task(background.run())
    assert await reaches(lambda: len(clock.pauses), ticks, 60)
    background.stop()
    await running
    return clock.pauses[ticks - 1]


@seen("WORKER_BUSY_LOOP_DELAY_MS", "900", 0.25, 0.9)
async def busy_pause(place: Place) -> Any:
    return await pace(place, 0.0, processed=1)


@seen("WORKER_IDLE_BACKOFF_MIN_MS", "4000", 1.0, 4.0)
async def first_pause(place: Place) -> Any:
    return await pace(place, 0.0)


@seen("WORKER_IDLE_BACKOFF_MAX_MS", "8000", 30.0, 8.0)
async def longest_pause(place: Place) -> Any:
    return await pace(place, 0.0, ticks=8)


@seen("WORKER_IDLE_BACKOFF_JITTER_MS", "3000", 1.25, 2.5)
async def jittered_pause(place: Place) -> Any:
    return await pace(place, 0.5)


@seen("WORKER_TICK_LOOP_ERROR_BACKOFF_MS", "9000", 31.0, 10.0)
@seen("WORKER_TICK_LOOP_MAX_JITTER_MS", "6000", 31.0, 33.0)
async def pause_after_error(place: Place) -> Any:
    return await pace(place, 0.5, fails=True)


class Answering:
    """A server on loopback that tells path and token back."""

    def __enter__(self) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told = {"path": self.path, "token": self.headers.get("x-service-token")}
                body = json.dumps(told).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


async def called(place: Place, name: str) -> Any:
    with Answering() as url:
        if os.environ.get("WORKER_API_BASE_URL"):
            place.monkeypatch.setenv("WORKER_API_BASE_URL", f"{url}/inner")
        try:
            client = ServiceClient.of(load_settings())
        except HoldfastError as error:
            return error.code
        return (await client.call("bill", key="k"))[name]


@seen(
    "WORKER_API_BASE_URL",
    "http://it",
    "HF010",
    "/inner/bill",
    WORKER_API_SERVICE_TOKEN="a token of the tests",
)
async def called_path(place: Place) -> Any:
    return await called(place, "path")


@seen(
    "WORKER_API_SERVICE_TOKEN",
    "hush, hush, hush",
    "HF010",
    "hush, hush, hush",
    WORKER_API_BASE_URL="http://it",
)
async def called_token(place: Place) -> Any:
    return await called(place, "token")


@seen(
    "WORKER_API_SERVICE_TOKEN_PREVIOUS",
    "the previous token",
    "HF086",
    "admitted",
    WORKER_API_SERVICE_TOKEN="a token of the tests",
)
async def admitted(place: Place) -> Any:
    headers = {"x-service-token": "the previous token", "idempotency-key": "k"}
    try:
        ServiceGuard(place.app()).admit(headers, "POST /bill")
    except HoldfastError as error:
        return error.code
    return "admitted"


# Reaping and retention.


def abandoned(app: Holdfast, count: int) -> None:
    """Make jobs whose workers took them an hour ago and are gone, under one lease each."""
    database = app.database
    past = database.read(database.store.schema.clock()) - HOUR_US
    ids = [new_id() for _ in range(count)]
    jobs = [NewJob(id=each, chain_id=each, type="charge", input="null") for each in ids]
    database.run(database.store.jobs.insert(jobs, now=past))
    for _ in ids:
        token = new_id()
        probe, lease = Probe("charge", 5, token, 1, 0, FIRST), LeaseClass(token, 1, 25, 1, 1)
        database.run(database.store.jobs.claim(Claim("w", 1, (probe,), (lease,)), past))
        database.run(database.store.leases.isolate(token))


@seen("HOLDFAST_POISON_LIMIT", "1", "pending", "failed", WORKER_TICK_RUNNERS="retention")
async def poisoned(place: Place) -> Any:
    app = place.app()
    abandoned(app, 1)
    await place.tick(app)
    (found,) = await app.aio.jobs.list()
    return found.state


@seen(
    "HOLDFAST_UNHANDLED_AFTER_MS",
    "50",
    "pending",
    "failed",
    WORKER_IDLE_BACKOFF_MIN_MS="50",
    WORKER_IDLE_BACKOFF_MAX_MS="50",
)
async def state_of_an_unknown_type(place: Place) -> Any:
    place.monkeypatch.setattr(maintenance, "SETTLE_MS", 0)
    app = place.app(open_types=True)
    with app.transaction() as tx:
        chain = app.start(tx, "mystery")
    async with place.working(app):
        await reaches(lambda: int(app.chains.get(chain.id).state == "failed"), 1)
    return app.chains.get(chain.id).state


@seen("HOLDFAST_REAPER_BATCH", "2", 1, 3, WORKER_TICK_RUNNERS="retention")
async def reaping_rounds(place: Place) -> Any:
    app = place.app()
    abandoned(app, 5)
    leases = type(app.database.store.leases)
    rounds: list[int] = []
    reap = leases.reap

    def watched(self: Any, *given: Any, **named: Any) -> Any:
        rounds.append(1)
        return reap(self, *given, **named)

    place.monkeypatch.setattr(leases, "reap", watched)
    await place.tick(app)
    return len(rounds)


async def left_after(place: Place, *days: int, failing: bool) -> list[int]:
    """How many chains are left so many days after they ended."""
    app = place.app(open_types=True)
    with app.transaction() as tx:
        chain = app.start(tx, "charge", max_attempts=1)
        if not failing:
            app.chains.complete(tx, chain.id)
    await place.tick(app)
    found = []
    for each in days:
        await place.tick(app, late_us=each * DAY_US)
        found.append(len(await app.aio.chains.list()))
    return found


@seen("HOLDFAST_RETENTION_DAYS", "60", [0], [1])
async def completed_chains(place: Place) -> Any:
    return await left_after(place, 31, failing=False)


@seen("HOLDFAST_DEAD_LETTER_DAYS", "7", [1, 1, 0], [1, 0, 0])
async def dead_letters(place: Place) -> Any:
    return await left_after(place, 6, 8, 91, failing=True)


@seen("HOLDFAST_KEY_DAYS", "10", True, False)
async def keys(place: Place) -> Any:
    app = place.app()
    with app.transaction() as tx:
        app.chains.complete(tx, app.start(tx, "charge", key="k", scope="any").id)
    await place.tick(app, late_us=31 * DAY_US)
    await place.tick(app, late_us=42 * DAY_US)
    with app.transaction() as tx:
        return app.start(tx, "charge", key="k", scope="any").deduplicated


@seen("HOLDFAST_RUN_DAYS", "60", False, True)
async def runs(place: Place) -> Any:
    app = place.app()
    first = (await place.tick(app)).run_id
    await place.tick(app, late_us=31 * DAY_US)
    found = {str(each.id) for each in await app.aio.cycles.runs("tick")}
    return first in found


@seen("HOLDFAST_TRACE_URL", "https://traces.example/{trace_id}", False, True)
async def trace_link(place: Place) -> Any:
    app = place.app()
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    job = NewJob(id=new_id(), chain_id=new_id(), type="charge", input="1", trace=trace)
    await app.database.run_async(app.database.store.jobs.insert([job]))
    served = create(app, settings=load_settings())
    transport = httpx.ASGITransport(served, client=("127.0.0.1", 50_000))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        page = await client.get(f"/jobs/{job.id}")
    await served.state.site.close()
    return "https://traces.example/0af7651916cd43dd8448eb211c80319c" in page.text


@seen("HOLDFAST_STREAMS", "1", [], [503])
@seen("HOLDFAST_STREAMS_PER_PRINCIPAL", "1", [], [429])
async def second_stream(place: Place) -> Any:
    served = create(place.app(), settings=load_settings())
    site = served.state.site
    transport = httpx.ASGITransport(served, client=("127.0.0.1", 50_000))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        readings = [asyncio.create_task(client.get("/api/v1/live")) for _ in range(2)]
        while site.broadcaster.subscribers + sum(each.done() for each in readings) < 2:
            await breath()
        refused = [each.result().status_code for each in readings if each.done()]
        await site.close()
        await asyncio.gather(*readings)
    return refused


@seen("HOLDFAST_ARCHIVE", "archive", [], ["orders"])
async def archive_files(place: Place) -> Any:
    app = place.open(place.url)
    archive = add_archive(app)
    archive.table("orders", key="id", at="placed_at")
    app.migrate()
    with app.transaction() as tx:
        tx.execute("create table orders (id integer primary key, placed_at integer)")
        tx.execute("insert into orders values (1, 1)")
    await asyncio.to_thread(archive.run)
    return [each.name for each in (place.path / "archive").glob("[a-z]*")]


@seen("HOLDFAST_ARCHIVE_CRON", "0 5 * * *", "47 3 * * *", "0 5 * * *")
async def archive_schedule(place: Place) -> Any:
    app = place.open(place.url)
    add_archive(app)
    app.migrate()
    await place.tick(app)
    (found,) = await app.aio.cycles.list()
    return found.schedule


async def tick_streams(place: Place, app: Holdfast, late_hours: int = 0) -> None:
    """Run a tick with its readers of the log, so many hours later than now."""
    now = app.database.read(app.database.store.schema.clock()) + late_hours * 3_600_000_000
    tick = replace(app.assembly(load_settings()), now=lambda: now).tick()
    await tick.run()
    await tick.close()


def consume(app: Holdfast) -> None:
    """Declare a consumer that does nothing, and publish an event for it."""

    @add_streams(app).consumer("order.*", name="revenue")
    def take(event: StreamEvent[Any], tx: Any) -> None: ...

    app.migrate()
    with app.transaction() as tx:
        app.publish(tx, "order.paid", {})


def set_hourly(app: Holdfast, *names: str) -> None:
    """Set schedules that are due every hour."""
    schedules = add_schedules(app)
    app.job("report.send")(lambda job: None)
    app.migrate()
    with app.transaction() as tx:
        for name in names:
            schedules.set(tx, name, "report.send", every="1h")


@seen("HOLDFAST_SCHEDULES_KEEP_DAYS", "30", 1, 2)
async def slots_kept(place: Place) -> Any:
    app = place.open(place.url)
    set_hourly(app, "report:7")
    await tick_streams(place, app, late_hours=2)
    await tick_streams(place, app, late_hours=24 * 9)
    return len(add_schedules(app).history("report:7"))


@seen("HOLDFAST_SCHEDULES_BATCH", "1", 1, 2)
async def schedules_at_once(place: Place) -> Any:
    app = place.open(place.url)
    heard: list[Any] = []
    app.observe(SimpleNamespace(observe=heard.append))
    set_hourly(app, "report:7", "report:8")
    await tick_streams(place, app, late_hours=2)
    return sum(each.name == "schedule_fired" for each in heard)


@seen("HOLDFAST_SCHEDULES_POLL_MS", "60000", 5.0, 60.0)
async def schedule_looks(place: Place) -> Any:
    app = place.open(place.url)
    set_hourly(app)
    return ScheduleRunner(app)._wait_s([])


@seen("HOLDFAST_STREAMS_KEEP_HOURS", "48", 0, 1)
async def log_kept(place: Place) -> Any:
    app = place.open(place.url)
    consume(app)
    await tick_streams(place, app)
    await tick_streams(place, app, late_hours=30)
    with app.transaction() as tx:
        return tx.execute("select count(*) from holdfast_log").fetchone()[0]


@seen("HOLDFAST_STREAMS_PARTITION_HOURS", "12", 1, 0)
async def log_partitions(place: Place) -> Any:
    app = place.open(place.postgres_url())
    consume(app)
    app.database.run(READERS.begin_part(0))
    before = app.database.read(READERS.parts())
    age_us = app.database.read(app.database.store.schema.clock()) - before[-1].begins_at
    await tick_streams(place, app, late_hours=8 - age_us // 3_600_000_000)
    return len(app.database.read(READERS.parts())) - len(before)


@seen("HOLDFAST_STREAMS_TAKEOVER_MS", "60000", True, False)
async def stream_lease(place: Place) -> Any:
    app = place.open(place.url)
    consume(app)

    def left() -> int | None:
        op = LINES.next_expiry_ms("nobody", ["revenue"])
        found: int | None = app.database.read(op)
        return found

    async with place.working(app):
        await until(lambda: left() is not None)
        return (left() or 0) <= 15_000


@seen("HOLDFAST_STREAMS_HANDLERS", "2", 4, 2)
async def stream_handlers(place: Place) -> Any:
    app = place.open(place.url)
    inside: list[int] = [0, 0]

    @add_streams(app).consumer("order.*", name="revenue")
    async def take(event: StreamEvent[Any], tx: Any) -> None:
        inside[0] += 1
        inside[1] = max(inside)
        await asyncio.sleep(0.3)
        inside[0] -= 1

    app.migrate()
    with app.transaction() as tx:
        for key in range(64):
            app.publish(tx, "order.paid", {}, key=str(key))
    async with place.working(app):
        await until(lambda: inside[1] > 1)
        await asyncio.sleep(0.2)
    return inside[1]
