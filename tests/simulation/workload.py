"""The job types of the simulation. Each job's input says how long it takes and how often it fails."""

import asyncio
from typing import Any, Protocol

from holdfast import Continue, CycleRun, Holdfast, Job, Limit, Ordered, Permanent, Rate, Retry
from holdfast.steps.current import current_step
from tests.simulation.history import Begun, History, StepCall

SOON = Retry(base="100ms", cap="500ms", max_attempts=30)
EFFECT = "insert into effect (job_id, fence, name) values (?, ?, ?)"
ALL_LIMITED = 3
PER_KEY = 2
RATE, RATE_S = 4, 1.0

app = Holdfast("sqlite:///:memory:", hints=False)


class Scene(Protocol):
    """Where handlers find out in which process they run."""

    history: History

    def process_of(self, worker: str) -> str: ...


scene: Any = None
"""The `Scene` of the run that is under way; there is one at a time."""


class Flaw(Exception):
    """What a handler raises that will do better next time."""


class Running:
    """Notes a handler's time, and lets it pass."""

    def __init__(self, job: Job[dict[str, Any]]) -> None:
        self._job = job
        process = scene.process_of(job.worker)
        self._begun: Begun = scene.history.begin(job, process, job.input.get("key", ""))

    async def __aenter__(self) -> Begun:
        return self._begun

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        history = scene.history
        self._begun.ended_at = history.world.now
        self._begun.how = "returned" if kind is None else kind.__name__


async def work_on(job: Job[dict[str, Any]]) -> None:
    """Take the time that the input says, and fail as often as it says."""
    if ms := job.input.get("ms", 0):
        await asyncio.sleep(ms / 1000)
    if job.attempt <= job.input.get("fails", 0):
        raise Flaw


@app.job("work", retry=SOON)
async def work(job: Job[dict[str, Any]]) -> None:
    async with Running(job):
        await work_on(job)


@app.job("long", retry=SOON, timeout="30s")
async def long(job: Job[dict[str, Any]]) -> None:
    async with Running(job):
        await work_on(job)


@app.job("doomed", retry=SOON)
async def doomed(job: Job[dict[str, Any]]) -> None:
    async with Running(job):
        await work_on(job)
        raise Permanent("as planned")


@app.job("paid", retry=SOON, atomic=True)
async def paid(job: Job[dict[str, Any]]) -> None:
    async with Running(job):
        await work_on(job)
        await job.tx.execute(EFFECT, (str(job.id), job.fence, "paid"))


@app.job("staged", retry=SOON)
async def staged(job: Job[dict[str, Any]]) -> None:
    async with Running(job):
        async with job.prepare() as tx:
            await tx.execute(EFFECT, (str(job.id), job.fence, "prepared"))
        await work_on(job)
        async with job.complete() as done:
            await done.tx.execute(EFFECT, (str(job.id), job.fence, "paid"))


@app.job("chain", retry=SOON, continues_to=["chain"])
async def chain(job: Job[dict[str, Any]]) -> Continue | int:
    async with Running(job):
        await work_on(job)
        if job.input["links"] <= job.chain_index:
            return job.chain_index
        return Continue("chain", job.input)


@app.job("part", retry=SOON)
async def part(job: Job[dict[str, Any]]) -> int:
    async with Running(job):
        await work_on(job)
        return int(job.input["part"])


@app.job("join", retry=SOON, waits_for=["part"])
async def join(job: Job[dict[str, Any]]) -> list[Any]:
    async with Running(job):
        return [each.output for each in job.blockers]


@app.job("spread", retry=SOON, continues_to=["join"])
async def spread(job: Job[dict[str, Any]]) -> Continue:
    async with Running(job):
        await work_on(job)
        async with job.complete() as done:
            inputs = [{"part": each, "ms": 5} for each in range(job.input["parts"])]
            parts = await app.start_many(done.tx, part, inputs)
            return done.continue_with(join, job.input, blockers=parts)


@app.job("limited", retry=SOON, limits=[Limit(PER_KEY, by="key"), Limit(ALL_LIMITED, name="all")])
async def limited(job: Job[dict[str, Any]]) -> None:
    async with Running(job):
        await work_on(job)


@app.job("rated", retry=SOON, rates=[Rate(RATE, f"{RATE_S}s")])
async def rated(job: Job[dict[str, Any]]) -> None:
    async with Running(job):
        await work_on(job)


@app.job("ordered", retry=SOON, ordered=Ordered(by="key", on_failure="skip"))
async def ordered(job: Job[dict[str, Any]]) -> None:
    async with Running(job):
        await work_on(job)


async def _count(job_id: str, ms: int) -> int:
    steps = scene.history.steps
    steps.append(StepCall(job_id, "first", current_step().fence))
    number = len(steps)
    await asyncio.sleep(ms / 1000)
    return number


@app.job("function", retry=SOON)
async def function(job: Job[dict[str, Any]]) -> int:
    async with Running(job):
        id = str(job.id)
        first = await job.step("first", _count, id, job.input["ms"])
        await work_on(job)
        await job.step("pay", _pay, id, atomic=True)
        await job.sleep("400ms")
        await job.wait_for("go", key=id)
        total = await job.run(work, {"ms": 3})
        assert total is None
        return first


async def _pay(tx: Any, job_id: str) -> None:
    await tx.execute(EFFECT, (job_id, current_step().fence, "paid"))


@app.cycle("sweep", every="1s", timeout="20s", missed="last")
async def sweep(run: CycleRun) -> int:
    begun = scene.history.begin_slot(run, scene.process_of(run.worker))
    begun.how = "raised"
    await asyncio.sleep(0.15)
    async with run.transaction() as tx:
        await tx.execute(EFFECT, (run.key, run.attempt, "swept"))
    begun.ended_at, begun.how = scene.history.world.now, "returned"
    return 1
