"""A worker starts a debounced job with its last input, and gives it back while its key is not quiet."""

import asyncio
import random
import threading
import time
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import pytest

from holdfast import Fair, Holdfast, Limit, Ordered, Rate
from holdfast.commands.debounce import DebouncedChain, DebouncedStart, start_debounced
from holdfast.commands.jobs import run_jobs_now
from holdfast.core.errors import DatabaseUnreachable
from holdfast.core.instants import Instant
from holdfast.core.records import Debounce, NewJob, NewKey
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op, run
from holdfast.worker.job import Job
from holdfast_testing.kit import Kit
from tests.support.until import until
from tests.worker.workshop import Workshop

LONG = Debounce(3_600_000)
"""So long that a job is started only when a test makes it due."""
SHORT = Debounce(100, 1_000)


pause = threading.Event()
"""Never set: waiting for it is how a producer thinks."""


def debounced(type: str, key: str, input: Any, how: Debounce, now: Instant) -> DebouncedStart:
    job_id = new_id()
    job = NewJob(
        id=job_id,
        chain_id=job_id,
        type=type,
        input=msgspec.json.encode(input).decode(),
        key=key,
        at=now + how.quiet_ms * 1000,
    )
    return DebouncedStart(job, NewKey(type, key, job_id), how)


async def ask(
    workshop: Workshop, type: str, input: Any, how: Debounce, key: str = "doc:7"
) -> DebouncedChain:
    now = await workshop.run(workshop.store.schema.clock())
    start = debounced(type, key, input, how, now)
    found: dict[str, DebouncedChain] = await workshop.run(start_debounced(workshop.store, [start]))
    return found[start.job.id]


async def test_a_worker_calls_the_handler_once_with_the_last_input(workshop: Workshop) -> None:
    inputs: list[int] = []

    async def reindex(job: Job[int]) -> None:
        inputs.append(job.input)

    workshop.handle("reindex", reindex)
    chains = [await ask(workshop, "reindex", number, SHORT) for number in range(5)]
    assert len({each.id for each in chains}) == 1
    async with workshop.working():
        await workshop.events.seen("job_completed")
    assert inputs == [4]
    assert (await workshop.job(chains[0].id)).input == "4"


async def test_a_job_that_is_put_off_does_not_start_and_costs_no_attempt(
    workshop: Workshop,
) -> None:
    inputs: list[int] = []

    async def reindex(job: Job[int]) -> None:
        inputs.append(job.input)

    workshop.handle("reindex", reindex)
    chain = await ask(workshop, "reindex", 1, LONG)
    await workshop.run(run_jobs_now(workshop.store, [chain.id]))
    await ask(workshop, "reindex", 2, LONG)
    report = await workshop.until_idle()
    assert (report.counters["claimed"], inputs) == (1, [])
    record = await workshop.job(chain.id)
    assert (record.state, record.attempt) == ("pending", 0)
    assert workshop.events.of("job_started") == []
    assert workshop.ledger.leases() == []
    await workshop.run(run_jobs_now(workshop.store, [chain.id]))
    await workshop.until_idle()
    assert inputs == [2]


async def test_what_is_asked_for_while_it_runs_runs_once_more_and_never_beside_it(
    workshop: Workshop,
) -> None:
    inputs: list[int] = []
    go_on = asyncio.Event()

    async def reindex(job: Job[int]) -> None:
        inputs.append(job.input)
        await go_on.wait()

    workshop.handle("reindex", reindex)
    first = await ask(workshop, "reindex", 1, SHORT)
    async with workshop.working():
        await until(lambda: inputs)
        for number in range(2, 6):
            follower = await ask(workshop, "reindex", number, SHORT)
        assert (follower.state, follower.id == first.id) == ("blocked", False)
        assert inputs == [1]
        go_on.set()
        await workshop.events.seen("job_completed", job_id=follower.id)
    assert inputs == [1, 5]


async def test_a_batch_handler_gets_the_last_inputs_of_its_jobs(workshop: Workshop) -> None:
    calls: list[list[int]] = []

    async def reindex(jobs: list[Job[int]]) -> None:
        calls.append(sorted(job.input for job in jobs))

    workshop.handle("reindex", reindex, batch=10)
    chain = await ask(workshop, "reindex", 1, LONG)
    await ask(workshop, "reindex", 2, LONG)
    await workshop.run(run_jobs_now(workshop.store, [chain.id]))
    await workshop.start("reindex", 7)
    await workshop.until_idle()
    assert calls == [[2, 7]]


SETTLING = ("revision_settle", "revision_newest")
"""The statements by which PostgreSQL and SQLite look at what a debounced job is to start with."""


class FailingOnce:
    """A database that is away when a debounced job is looked at for the first time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.failed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def run_async(self, op: Op[Any]) -> Any:
        return await self._database.run_async(self._fail_once(op))

    def _fail_once(self, op: Op[Any]) -> Op[Any]:
        rows = None
        while True:
            try:
                statement = op.send(rows)  # type: ignore[arg-type]
            except StopIteration as end:
                return end.value
            if statement.name in SETTLING and not self.failed:
                self.failed += 1
                raise DatabaseUnreachable("away for a moment")
            rows = yield statement


async def test_a_database_that_fails_before_the_start_costs_no_attempt(workshop: Workshop) -> None:
    inputs: list[int] = []

    async def reindex(job: Job[int]) -> None:
        inputs.append(job.input)

    workshop.handle("reindex", reindex)
    chain = await ask(workshop, "reindex", 1, LONG)
    await workshop.run(run_jobs_now(workshop.store, [chain.id]))
    database = FailingOnce(workshop.database)
    async with workshop.working(database=database):
        await workshop.events.seen("job_completed")
    assert (database.failed, inputs) == (1, [1])
    assert (await workshop.job(chain.id)).attempt == 1


class Start(NamedTuple):
    """A start that a producer has committed."""

    chain: str
    key: str
    committed_after: float


class Run(NamedTuple):
    """A call of the handler."""

    chain: str
    key: str
    input: int
    began: float
    ended: float


KEYS, PRODUCERS, STARTS = ("a", "b"), 3, 25


def produce(workshop: Workshop, key: str, seed: int, made: list[Start]) -> None:
    """Start again and again, each time in a transaction that stays open for a moment."""
    chance = random.Random(seed)
    for number in range(STARTS):
        with workshop.database.transaction() as tx:
            now = run(workshop.store.schema.clock(), tx)
            start = debounced("reindex", key, seed * STARTS + number, SHORT, now)
            found = run(start_debounced(workshop.store, [start]), tx)
            pause.wait(chance.uniform(0, 0.02))
            before = time.monotonic()
        made.append(Start(found[start.job.id].id, key, before))
        pause.wait(chance.uniform(0, 0.05))


async def test_beside_workers_and_producers_nothing_is_lost_and_nothing_runs_beside_itself(
    workshop: Workshop,
) -> None:
    runs: list[Run] = []

    async def reindex(job: Job[int]) -> None:
        began = time.monotonic()
        # Starts come while it runs.
        await asyncio.sleep(random.uniform(0, 0.05))
        runs.append(Run(str(job.chain_id), str(job.key), job.input, began, time.monotonic()))

    workshop.handle("reindex", reindex)
    made: list[Start] = []
    async with workshop.working(), workshop.working():
        producers = [
            asyncio.to_thread(produce, workshop, key, seed, made)
            for seed, key in enumerate(KEYS * PRODUCERS)
        ]
        await asyncio.gather(*producers)
        last = {
            key: await ask(workshop, "reindex", 9_000 + place, SHORT, key)
            for place, key in enumerate(KEYS)
        }
        chains = {each.chain for each in made} | {each.id for each in last.values()}
        await workshop.events.seen("job_completed", count=len(chains))
    assert len(made) == len(KEYS) * PRODUCERS * STARTS
    # One run a chain, none beside another of its key, and each after all the starts that led to it.
    by_chain = {each.chain: each for each in runs}
    assert (len(by_chain), set(by_chain)) == (len(runs), chains)
    for each in made:
        assert by_chain[each.chain].ended > each.committed_after
    for place, key in enumerate(KEYS):
        mine = sorted((each for each in runs if each.key == key), key=lambda each: each.began)
        assert all(a.ended <= b.began for a, b in pairwise(mine))
        assert mine[-1].input == 9_000 + place


LINES: dict[str, dict[str, Any]] = {
    "limit": {"limits": [Limit(1, by="tenant")]},
    "limit of all keys": {"limits": [Limit(1)]},
    "rate": {"rates": [Rate(100, "1s", by="tenant")]},
    "turns": {"fair": Fair(by="tenant")},
    "order": {"ordered": Ordered(by="tenant")},
}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.mark.parametrize("options", LINES.values(), ids=LINES.keys())
def test_a_debounced_job_that_waits_in_a_line_starts_once_it_is_quiet(
    url: str, options: dict[str, Any]
) -> None:
    app = Holdfast()
    ran: list[int] = []

    def save(n: int) -> None:
        input = {"tenant": 7, "n": n}
        with app.transaction() as tx:
            app.start(tx, "reindex", input, key="doc:7", debounce="30s", latest="50s")

    @app.job("reindex", **options)
    def reindex(job: Job[dict[str, int]]) -> None:
        ran.append(job.input["n"])
        if job.input["n"] == 3:
            save(4)

    kit = Kit(app, url)
    try:
        save(1)
        kit.advance("20s")
        save(2)
        kit.advance("20s")
        kit.run_until_idle()
        assert ran == []
        save(3)
        kit.advance("11s")  # the latest time has come before the quiet
        kit.run_until_idle()
        assert ran == [3]
        kit.advance("31s")
        kit.run_until_idle()
        assert ran == [3, 4]
        save(5)
        with app.transaction() as tx:
            app.jobs.trigger(tx, *[each.id for each in app.jobs.list("state:pending", tx=tx)])
        kit.run_until_idle()
        assert ran == [3, 4, 5]
    finally:
        app.close()
