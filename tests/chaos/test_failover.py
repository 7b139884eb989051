"""A server whose commits wait for a standby: nothing is granted or acknowledged that the standby has not got."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest

from holdfast import Holdfast, Job, errors
from holdfast.storage.database import Link
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.postgres.store import postgres_statements
from holdfast.storage.sql_loader import DEFAULT_SCHEMA, Compiled
from holdfast.worker.admission import UNRECORDED_MAX
from holdfast_calls import ServiceCall
from holdfast_calls.errors import CallAlreadyDone
from tests.chaos.standby import WAITING, Pair
from tests.chaos.test_lost_claims import claim_on, complete_on
from tests.support.until import SLOWNESS, TEST_TIMEOUT_S, until

APPLICATION = """
import asyncio
import os
from holdfast import Holdfast, Job

app = Holdfast()

@app.job("work")
async def work(job: Job[int]) -> None:
    with open("started", "a") as log:
        log.write(f"{job.input}\\n")
    await asyncio.sleep(float(os.environ.get("SECONDS", "0")))
"""
JOBS = 20
SLOTS = 10
BEHIND_US = 10_000_000
OWN_SESSIONS = "select from pg_stat_activity where application_name like 'holdfast %'"
MAX_SESSIONS = 16
AWAY_S = 600
HANGING_TWICE = """
select application_name from pg_stat_activity where wait_event = 'SyncRep' and application_name like 'holdfast %'
 group by 1 having count(*) > 1
"""

Scene = Callable[[Pair, Holdfast], Coroutine[Any, Any, None]]


@contextmanager
def working(folder: Path, url: str, **settings: str) -> Iterator[None]:
    """Run `holdfast worker` on a server."""
    (folder / "shop.py").write_text(APPLICATION)
    (folder / "started").touch()
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "worker", "shop:app"],
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "HOLDFAST_URL": url, "PYTHONPATH": ":".join(sys.path)}
            | settings,
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()


@asynccontextmanager
async def closing_links(*links: Link) -> AsyncIterator[None]:
    """Close links in the end."""
    try:
        yield
    finally:
        for each in links:
            await each.close()


def started(folder: Path) -> list[str]:
    return (folder / "started").read_text().split()


def start_all(app: Holdfast, delay_s: float = 0, jobs: int = JOBS) -> None:
    with app.transaction() as tx:
        app.start_many(tx, "work", list(range(jobs)), after=delay_s)


async def test_a_primary_without_its_standby_grants_no_job(
    pair: Pair, app: Holdfast, tmp_path: Path
) -> None:
    with working(tmp_path, pair.primary.url):
        await until(lambda: pair.ask("select from holdfast.worker"))
        await asyncio.to_thread(start_all, app, 2 * SLOWNESS)
        pair.standby.stop("immediate")
        await pair.waits("claim")
        assert started(tmp_path) == []
        pair.standby.start()
        await until(lambda: len(started(tmp_path)) == JOBS)
    assert sorted(map(int, started(tmp_path))) == list(range(JOBS))


async def lost_claim(pair: Pair, app: Holdfast) -> None:
    """A claim on a primary that is lost is none."""
    await asyncio.to_thread(start_all, app, 0, 2)
    pair.standby.stop("immediate")
    database = app.database
    assert isinstance(database, PostgresDatabase)
    first, second = database.link("claim", 300), database.link("tick", 300)
    async with closing_links(first, second):
        with pytest.raises(errors.DatabaseUnreachable):
            await claim_on(first, database, limit=1)
        # The row of the first stays locked by the commit that waits. A lazy claim is granted all the same.
        assert (await claim_on(second, database, "lazy")).attempt == 1
        # While the server holds the first session, its link asks for no other one.
        with pytest.raises(errors.DatabaseUnreachable, match="still waits for the synchronous"):
            await claim_on(first, database, limit=1)


def begin(app: Holdfast, id: UUID) -> None:
    """Start a job by id and key, and use a key."""
    with app.transaction() as tx:
        app.start(tx, "work", 1, id=id, key="k")
        app.use_key(tx, "bills", "k")


def start_again(app: Holdfast, id: UUID) -> None:
    with app.transaction() as tx:
        app.start(tx, "work", 1, id=id)


def start_by_key(app: Holdfast, id: UUID) -> None:
    with app.transaction() as tx:
        app.start(tx, "work", 1, key="k")


def use_key(app: Holdfast, id: UUID) -> None:
    with app.transaction() as tx:
        app.use_key(tx, "bills", "k")


def serve(app: Holdfast, id: UUID) -> None:
    with suppress(CallAlreadyDone), app.transaction() as tx:
        ServiceCall(app, "bills", "k").once(tx)


def ask(app: Holdfast, id: UUID) -> None:
    app.chains.get(id)


REPEATS = (start_again, start_by_key, use_key, serve, ask)


async def repeated_start(pair: Pair, app: Holdfast) -> None:
    """What is there already, by id, by key or as a used key, is acknowledged only when it would survive."""
    id = app.new_id()
    acknowledged: list[str] = []

    def acknowledge(call: Callable[[Holdfast, UUID], None], app: Holdfast) -> None:
        with suppress(errors.HoldfastError):
            call(app, id)
            acknowledged.append(call.__name__)

    pair.standby.stop("immediate")
    first = threading.Thread(target=acknowledge, args=[begin, app])
    first.start()
    cut = await pair.waits("client")
    pair.ask("select pg_terminate_backend(%s)", cut)
    await asyncio.to_thread(first.join)
    assert pair.ask("select count(*) from holdfast.job where id = %s", id) == [(1,)]

    others = [Holdfast(pair.primary.url, open_types=True) for _ in REPEATS]
    repeats = [
        threading.Thread(target=acknowledge, args=each)
        for each in zip(REPEATS, others, strict=True)
    ]
    for each in repeats:
        each.start()

    def all_have_asked() -> bool:
        return len(acknowledged) + len(pair.ask(WAITING, ["holdfast client"])) >= len(REPEATS)

    await until(all_have_asked)
    was_acknowledged = list(acknowledged)
    pair.fail_over()
    for each in repeats:
        await asyncio.to_thread(each.join)
    for other in others:
        other.close()
    assert not was_acknowledged, sorted(was_acknowledged)
    assert acknowledged == []
    with psycopg.connect(pair.standby.url) as connection:
        assert connection.execute("select count(*) from holdfast.job").fetchone() == (0,)


async def awaited_end(pair: Pair, app: Holdfast) -> None:
    """That a chain has ended is said to those who wait for it only when it would survive."""
    with app.transaction() as tx:
        id = app.start(tx, "work", 1).id
    acknowledged: list[str] = []

    def complete() -> None:
        with suppress(errors.HoldfastError), app.transaction() as tx:
            app.chains.complete(tx, id)

    def wait(other: Holdfast) -> None:
        other.chains.wait(id)
        acknowledged.append("wait")

    pair.standby.stop("immediate")
    first = threading.Thread(target=complete)
    first.start()
    cut = await pair.waits("client")
    pair.ask("select pg_terminate_backend(%s)", cut)
    await asyncio.to_thread(first.join)
    assert pair.ask("select state from holdfast.outcome") == [("completed",)]

    with closing(Holdfast(pair.primary.url, open_types=True)) as other:
        waiting = threading.Thread(target=wait, args=[other])
        waiting.start()
        await until(lambda: acknowledged or pair.ask(WAITING, ["holdfast client"]))
        was_acknowledged = list(acknowledged)
        pair.standby.start()
        await asyncio.to_thread(waiting.join)
    assert not was_acknowledged, was_acknowledged
    assert acknowledged == ["wait"]


async def completion_done_by_us(pair: Pair, app: Holdfast) -> None:
    """A worker that finds its outcome recorded by a try that was cut off believes it only when it would survive."""
    started, go = asyncio.Event(), asyncio.Event()

    @app.job("held")
    async def held(job: Job[int]) -> None:
        started.set()
        await go.wait()

    with app.transaction() as tx:
        app.start(tx, "held", 1)
    worker = app.make_worker()
    running = asyncio.create_task(worker.run())
    await started.wait()
    pair.standby.stop("immediate")
    go.set()
    cut = await pair.waits("complete")
    pair.ask("select pg_terminate_backend(%s)", cut)
    await until(lambda: pair.ask("select state from holdfast.outcome") == [("completed",)])
    await until(
        lambda: (
            worker.counters.processed or set(pair.ask(WAITING, ["holdfast complete"])) - {(cut,)}
        )
    )
    was_recorded = worker.counters.processed
    pair.standby.start()
    await until(lambda: worker.counters.processed == 1)
    worker.stop()
    await running
    assert not was_recorded, "processed"


async def fence_of_a_late_clock(pair: Pair, app: Holdfast) -> None:
    """A job whose claim was lost has a greater fence on the promoted server, whose clock is behind."""
    await asyncio.to_thread(start_all, app, 0, 1)
    pair.ask("update holdfast.queue set available_at = available_at - interval '1 h' returning 1")
    pair.standby.stop("immediate")
    primary = app.database
    assert isinstance(primary, PostgresDatabase)
    link = primary.link("claim")
    async with closing_links(link):
        lost = await claim_on(link, primary, "lazy")
    await asyncio.to_thread(pair.fail_over)
    promoted = PostgresDatabase(pair.standby.url)
    link = promoted.link("claim")
    async with closing_links(link):
        again = await claim_on(link, promoted, now=lost.claimed_at - BEHIND_US)
        assert again.id == lost.id
        assert again.fence > lost.fence
        assert await complete_on(link, promoted, lost) == 0
        assert await complete_on(link, promoted, again) == 1


SCENES = [lost_claim, repeated_start, awaited_end, completion_done_by_us, fence_of_a_late_clock]


@pytest.mark.parametrize("scene", SCENES, ids=lambda each: each.__name__)
async def test_what_is_granted_or_acknowledged_survives_a_failover(
    scene: Scene, pair: Pair, app: Holdfast
) -> None:
    await scene(pair, app)


def replace_in(monkeypatch: pytest.MonkeyPatch, statement: str, correct: str, wrong: str) -> None:
    """Plant a bug in a statement."""
    statements: Any = postgres_statements("dollar", DEFAULT_SCHEMA)
    compiled = statements[statement]
    assert correct in compiled.text
    planted = Compiled(compiled.text.replace(correct, wrong), compiled.order)
    monkeypatch.setitem(statements, statement, planted)


NAMES = [each.__name__ for each in REPEATS]
# A start by key writes in any case, so to leave the message out would not show.
ONLY_READS = (
    ["answer_confirm"],
    "pg_logical_emit_message(true, 'holdfast', '')",
    "set_config('synchronous_commit', 'local', true)",
)
NO_STANDBY = "(pg_catalog.current_setting('synchronous_standby_names') operator(pg_catalog.=) '')"


@pytest.mark.parametrize(
    ("scene", "statements", "correct", "wrong", "found"),
    [
        (lost_claim, ["job_claim", "job_claim_queues"], NO_STANDBY, "true", []),
        (repeated_start, *ONLY_READS, NAMES),
        (awaited_end, *ONLY_READS, ["wait"]),
        (completion_done_by_us, *ONLY_READS, ["processed"]),
        (
            fence_of_a_late_clock,
            ["job_claim", "job_claim_queues"],
            "(select lowest_fence from clock)",
            "(select us / 1000 from clock)",
            [],
        ),
    ],
    ids=[
        "a lazy claim",
        "an answer that only reads",
        "a wait that only reads",
        "a completion that only reads",
        "a fence by the clock alone",
    ],
)
@pytest.mark.breaks_laws
async def test_a_planted_bug_is_found(
    scene: Scene,
    statements: list[str],
    correct: str,
    wrong: str,
    found: list[str],
    pair: Pair,
    app: Holdfast,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for statement in statements:
        replace_in(monkeypatch, statement, correct, wrong)
    with pytest.raises((AssertionError, pytest.fail.Exception)) as finding:
        await scene(pair, app)
    for each in found:
        assert each in str(finding.value)


class Pace(NamedTuple):
    """How long handlers take, how many jobs there are, and how many may start that cannot be recorded."""

    seconds: float
    jobs: int
    most_in_vain: int


USUAL = Pace(0.05, 500, 2 * SLOTS)
SHORT = Pace(0.005, 5_000, 2 * SLOTS)
INSTANT = Pace(0, 5_000, UNRECORDED_MAX)


async def be_without_the_standby(
    pair: Pair, app: Holdfast, folder: Path, pace: Pace, away_s: float, **settings: str
) -> None:
    """Run a worker with more than enough to do, take its server's standby away, and bring it back."""
    await asyncio.to_thread(start_all, app, 0, pace.jobs)
    settings |= {"HOLDFAST_SLOTS": str(SLOTS), "SECONDS": str(pace.seconds)}
    with working(folder, pair.primary.url, **settings):
        await until(lambda: len(started(folder)) > 5 * SLOTS)
        pair.standby.stop("kill")
        await pair.waits("complete")
        await asyncio.sleep(away_s)
        ((recorded,),) = pair.ask("select count(*) from holdfast.outcome")
        in_vain = len(started(folder)) - recorded
        assert 0 < in_vain <= pace.most_in_vain
        assert recorded + in_vain < pace.jobs
        assert len(pair.ask(OWN_SESSIONS)) <= MAX_SESSIONS
        # One that was given up may take a moment to end beside the next.
        await until(lambda: pair.ask(HANGING_TWICE) == [])
        pair.standby.start()
        await until(lambda: len(set(started(folder))) == pace.jobs)


@pytest.mark.parametrize(
    ("claims", "pace"),
    [("auto", USUAL), ("lazy", USUAL), ("auto", SHORT), ("auto", INSTANT)],
    ids=["auto", "lazy", "short handlers", "instant handlers"],
)
async def test_without_the_standby_few_handlers_start_in_vain_and_few_connections_hang(
    claims: str, pace: Pace, pair: Pair, app: Holdfast, tmp_path: Path
) -> None:
    # Each link would have given up and opened another connection four times.
    settings = {"HOLDFAST_CLAIMS": claims, "HOLDFAST_STATEMENT_TIMEOUT_MS": "100"}
    await be_without_the_standby(pair, app, tmp_path, pace, 9, **settings)


@pytest.mark.lasting
@pytest.mark.timeout(AWAY_S + TEST_TIMEOUT_S)
async def test_ten_minutes_without_the_standby_cost_few_handlers_and_few_connections(
    pair: Pair, app: Holdfast, tmp_path: Path
) -> None:
    await be_without_the_standby(pair, app, tmp_path, SHORT, AWAY_S)


async def test_a_repeated_start_is_answered_at_once_while_the_standby_is_there(
    pair: Pair, app: Holdfast
) -> None:
    id = app.new_id()
    for expected in (False, True):
        with app.transaction() as tx:
            assert app.start(tx, "work", 1, id=id).deduplicated is expected
    assert app.chains.get(id).id == id
