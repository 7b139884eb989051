"""Chains of every shape: straight, branching, looping and jumping back; their output is the last job's."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from holdfast import Continue, Holdfast, Job, Permanent
from holdfast.core.errors import UnknownJobType
from holdfast.worker.options import WorkerOptions
from tests.support.buckets import bucket_of


@pytest.fixture(params=["sqlite_url", "postgres_url"], ids=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@pytest_asyncio.fixture
async def app(url: str) -> AsyncIterator[Holdfast]:
    app = Holdfast(url)
    app.migrate()
    yield app
    await app.aclose()


async def shape_of(app: Holdfast, start: str, input: Any) -> tuple[list[str], Any]:
    """Run a chain to its end; return the types of its jobs and its output."""
    async with app.transaction() as tx:
        chain = await app.start(tx, start, input)
    await app.make_worker(WorkerOptions(stop_when_idle=True)).run()
    jobs = await app.aio.chains.jobs(chain.id)
    assert [each.chain_index for each in jobs] == list(range(len(jobs)))
    assert [each.continued for each in jobs] == [True] * (len(jobs) - 1) + [False]
    assert {bucket_of(str(each.id)) for each in jobs} == {bucket_of(str(chain.id))}
    ended = await app.aio.chains.get(chain.id)
    return [each.type for each in jobs], ended.output


async def test_a_chain_goes_straight_branches_and_loops(app: Holdfast) -> None:
    @app.job("begin", continues_to=["left", "right", "count"])
    async def begin(job: Job[dict[str, Any]]) -> Continue:
        return Continue(job.input["to"], job.input["n"])

    @app.job("left", entry=False)
    async def left(job: Job[int]) -> str:
        return f"left {job.input}"

    @app.job("right", entry=False)
    def right(job: Job[int]) -> str:
        return f"right {job.input}"

    @app.job("count", entry=False, continues_to=["count", "left"])
    async def count(job: Job[int]) -> Continue | str:
        return Continue(count, job.input - 1) if job.input else Continue(left, job.input)

    assert await shape_of(app, "begin", {"to": "left", "n": 1}) == (["begin", "left"], "left 1")
    assert await shape_of(app, "begin", {"to": "right", "n": 2}) == (["begin", "right"], "right 2")
    assert await shape_of(app, "begin", {"to": "count", "n": 3}) == (
        ["begin", "count", "count", "count", "count", "left"],
        "left 0",
    )


async def test_a_chain_may_go_back_to_an_earlier_type(app: Holdfast) -> None:
    @app.job("draft")
    async def draft(job: Job[int]) -> Continue:
        async with job.complete() as done:
            return done.continue_with(review, job.input)

    @app.job("review", entry=False)
    async def review(job: Job[int]) -> Continue | str:
        return Continue(draft, job.input + 1) if job.input < 2 else "accepted"

    assert await shape_of(app, "draft", 1) == (["draft", "review", "draft", "review"], "accepted")


async def test_who_failed_with_a_blocker_stays_failed_when_that_is_redriven_and_is_listed(
    app: Holdfast,
) -> None:
    mended: list[bool] = []

    @app.job("first")
    async def first(job: Job[Any]) -> str:
        if not mended:
            raise Permanent("not yet")
        return "done"

    @app.job("second")
    async def second(job: Job[Any]) -> Any:
        return [each.output for each in job.blockers]

    async with app.transaction() as tx:
        blocker = await app.start(tx, first)
        failing = await app.start(tx, second, blockers=[blocker])
        waiting = await app.start(tx, second, blockers=[blocker], on_blocker_failure="wait")
    options = WorkerOptions(stop_when_idle=True)
    await app.make_worker(options).run()
    mended.append(True)
    async with app.transaction() as tx:
        await app.chains.retry(tx, blocker.id)
    await app.make_worker(options).run()
    states = [(await app.aio.chains.get(each.id)).state for each in (blocker, failing, waiting)]
    assert states == ["completed", "failed", "completed"]
    assert (await app.aio.chains.get(waiting.id)).output == ["done"]
    (dead,) = await app.aio.dead_letters.list("fingerprint:blocker-failed")
    assert dead.id == failing.id
    assert str(blocker.id) in str(dead.error)


async def test_a_job_waits_only_for_what_its_type_declares(app: Holdfast) -> None:
    app.declare("allowed")
    app.declare("other")

    @app.job("strict", waits_for=["allowed"])
    async def strict(job: Job[Any]) -> None: ...

    @app.job("begin")
    async def begin(job: Job[str]) -> Continue:
        return Continue(strict, blockers=[job.input])

    async with app.transaction() as tx:
        allowed, other = await app.start(tx, "allowed"), await app.start(tx, "other")
        assert (await app.start(tx, strict, blockers=[allowed])).state == "blocked"
        with pytest.raises(UnknownJobType, match="strict does not declare that it waits for other"):
            await app.start(tx, strict, blockers=[allowed, other])
        good = await app.start(tx, begin, str(allowed.id))
        bad = await app.start(tx, begin, str(other.id))
    await app.make_worker(WorkerOptions(stop_when_idle=True), types=["begin"]).run()
    assert (await app.aio.chains.get(good.id)).state == "blocked"
    failed = await app.aio.chains.get(bad.id)
    assert failed.state == "failed"
    assert "does not declare that it waits for other" in str(failed.error)


async def test_a_successor_does_not_wait_for_its_own_chain(app: Holdfast) -> None:
    @app.job("end")
    async def end(job: Job[Any]) -> None: ...

    @app.job("begin")
    async def begin(job: Job[Any]) -> Continue:
        return Continue(end, blockers=[job.chain_id])

    async with app.transaction() as tx:
        chain = await app.start(tx, begin)
    await app.make_worker(WorkerOptions(stop_when_idle=True)).run()
    failed = await app.aio.chains.get(chain.id)
    assert failed.state == "failed"
    assert "wait for its own chain" in str(failed.error)


async def test_a_chain_does_not_go_on_with_a_name_that_nobody_declared(app: Holdfast) -> None:
    @app.job("begin")
    async def begin(job: Job[str]) -> Continue:
        return Continue(job.input)

    app.declare("mail.send")
    async with app.transaction() as tx:
        good = await app.start(tx, begin, "mail.send")
        bad = await app.start(tx, begin, "mail.sned")
    await app.make_worker(WorkerOptions(stop_when_idle=True)).run()
    assert (await app.aio.chains.get(good.id)).state == "pending"
    failed = await app.aio.chains.get(bad.id)
    assert failed.state == "failed"
    assert "no job type 'mail.sned' is registered" in str(failed.error)


async def test_an_application_of_open_types_goes_on_with_any_name(sqlite_url: str) -> None:
    app = Holdfast(sqlite_url, open_types=True)
    app.migrate()

    @app.job("begin")
    async def begin(job: Job[None]) -> Continue:
        return Continue("elsewhere", 7)

    async with app.transaction() as tx:
        chain = await app.start(tx, begin)
    await app.make_worker(WorkerOptions(stop_when_idle=True)).run()
    assert [each.type for each in await app.aio.chains.jobs(chain.id)] == ["begin", "elsewhere"]
    await app.aclose()


async def test_a_successors_input_is_held_to_the_applications_limit(sqlite_url: str) -> None:
    app = Holdfast(sqlite_url, payload_limit=100)
    app.migrate()

    @app.job("begin")
    async def begin(job: Job[None]) -> Continue:
        return Continue("count", "x" * 200)

    @app.job("count")
    async def count(job: Job[str]) -> int:
        return len(job.input)

    async with app.transaction() as tx:
        chain = await app.start(tx, begin)
    await app.make_worker(WorkerOptions(stop_when_idle=True)).run()
    failed = await app.aio.chains.get(chain.id)
    assert failed.state == "failed"
    assert "PayloadTooLarge" in str(failed.error)
    await app.aclose()


@pytest.mark.parametrize("atomic", [False, True], ids=["plain", "atomic"])
async def test_two_chains_that_would_wait_for_each_other_end_instead(
    app: Holdfast, atomic: bool
) -> None:
    both = asyncio.Barrier(2)
    ids: dict[str, str] = {}

    @app.job("wish", atomic=atomic)
    async def wish(job: Job[str]) -> Continue:
        if job.attempt == 1:
            await both.wait()
        return Continue("after", blockers=[ids[job.input]])

    @app.job("after", entry=False)
    async def after(job: Job[Any]) -> None: ...

    async with app.transaction() as tx:
        for name in ("one", "two"):
            ids[name] = str((await app.start(tx, wish, "two" if name == "one" else "one")).id)
    options = WorkerOptions(stop_when_idle=True, slots=2)
    await asyncio.gather(*(app.make_worker(options).run() for _ in range(2)))
    # Two atomic handlers may meet in a deadlock, of which PostgreSQL ends one: that one comes again.
    for each in await app.aio.chains.list("state:pending"):
        async with app.transaction() as tx:
            await app.chains.trigger(tx, each.id)
        await app.make_worker(options).run()
    ended = [await app.aio.chains.get(each) for each in ids.values()]
    assert [each.state for each in ended] == ["failed", "failed"]
    errors = sorted(str(each.error).split(":")[0] for each in ended)
    assert errors == ["BlockerFailed", "CircularWait"]
