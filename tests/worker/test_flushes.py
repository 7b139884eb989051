"""When outcomes are flushed: at once if somebody may wait for one, otherwise together with what ends soon after."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import pytest
import pytest_asyncio

from holdfast.core.flow import Limit
from holdfast.core.outcome import Continue, Snooze
from holdfast.notify.base import Hint
from holdfast.worker import completer
from holdfast.worker.job import Job
from tests.support.manual_clock import ManualClock
from tests.support.until import until
from tests.worker.faults import Faults
from tests.worker.workshop import RunningWorker, Workshop

T = TypeVar("T")

LONE = 20


class Scene:
    """A worker that gathers small flushes for an hour, with one job that runs all the time and one flushed just now."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self.faults = Faults()
        self.may_end: dict[str, asyncio.Event] = {}

    async def begin(self) -> RunningWorker:
        async def held(job: Job[str]) -> None:
            await self.may_end[job.input].wait()

        async def fails(job: Job[None]) -> None:
            raise ValueError

        async def snoozes(job: Job[None]) -> Snooze:
            return Snooze("1h")

        async def continues(job: Job[None]) -> Continue:
            return Continue("quick", None)

        async def limited(job: Job[None]) -> None: ...

        workshop = self.workshop
        workshop.handle("held", held)
        workshop.handle("fails", fails)
        workshop.handle("snoozes", snoozes)
        workshop.handle("continues", continues)
        workshop.handle("limited", limited, limits=[Limit(5)])
        workshop.handle_quick()
        self.worker = workshop.begin(notifier=workshop.notifier, faults=self.faults, slots=4)
        await self.start_held("always")
        await self.end("quick")
        return self.worker

    async def start(self, type: str, input: Any = None) -> str:
        gate = "limited#" if type == "limited" else None
        job_id = await self.workshop.start_one(type, input, gate=gate)
        self.workshop.have_due()
        await self.workshop.events.seen("job_started", job_id=job_id)
        return job_id

    async def start_held(self, name: str) -> str:
        self.may_end[name] = asyncio.Event()
        return await self.start("held", name)

    async def end(self, type: str) -> None:
        job_id = await self.start(type)
        await self.workshop.events.seen("job_completed", job_id=job_id)


@pytest_asyncio.fixture
async def scene(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(completer, "GATHER_S", 3_600.0)
    scene = Scene(workshop)
    running = await scene.begin()
    yield scene
    for each in scene.may_end.values():
        each.set()
    await running.stop()


async def test_small_flushes_wait_for_one_another_while_handlers_run(scene: Scene) -> None:
    ids = [await scene.start_held(name) for name in ("first", "second")]
    flushes = scene.faults.runs("complete")
    scene.may_end["first"].set()
    scene.may_end["second"].set()
    await until(lambda: scene.worker.worker.running == 1)
    assert await scene.workshop.states(ids) == ["running", "running"]
    assert scene.faults.runs("complete") == flushes
    scene.may_end["always"].set()
    await scene.workshop.events.seen("job_completed", count=4)
    assert scene.faults.runs("complete") == flushes + 1


async def test_a_flush_that_is_large_enough_waits_for_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completer, "SMALL_FLUSH", 2)
    ids = [await scene.start_held(name) for name in ("first", "second")]
    scene.may_end["first"].set()
    scene.may_end["second"].set()
    for each in ids:
        await scene.workshop.events.seen("job_completed", job_id=each)


@pytest.mark.parametrize(
    ("type", "event"),
    [
        ("fails", "job_retried"),
        ("snoozes", "job_snoozed"),
        ("continues", "job_continued"),
        ("limited", "job_completed"),
    ],
)
async def test_an_outcome_that_others_follow_from_is_flushed_at_once(
    scene: Scene, type: str, event: str
) -> None:
    job_id = await scene.start(type)
    await scene.workshop.events.seen(event, job_id=job_id)


async def test_an_outcome_that_a_client_waits_for_is_flushed_at_once(scene: Scene) -> None:
    job_id = await scene.start_held("awaited")
    scene.workshop.notifier.send([Hint("awaited", ids=(job_id,))])
    await scene.workshop.beat(scene.worker)
    scene.may_end["awaited"].set()
    await scene.workshop.events.seen("job_completed", job_id=job_id)


async def test_a_worker_that_stops_flushes_at_once(scene: Scene) -> None:
    job_id = await scene.start_held("first")
    scene.may_end["first"].set()
    await until(lambda: scene.worker.worker.running == 1)
    scene.worker.worker.stop()
    await scene.workshop.events.seen("job_completed", job_id=job_id)


async def test_handlers_that_may_not_begin_before_a_flush_do_not_wait_for_it(scene: Scene) -> None:
    # As many outcomes as there are slots may be unrecorded.
    ids = await scene.workshop.start("quick", count=30)
    scene.workshop.have_due()
    await scene.workshop.events.seen("job_started", count=2 + len(ids))


async def test_a_lone_job_costs_one_claim_and_one_flush(workshop: Workshop) -> None:
    workshop.handle_quick()
    faults, clock = Faults(), ManualClock()
    worker = workshop.begin(clock, notifier=workshop.notifier, faults=faults, poll_ms=60_000)
    await worker.idle(60)
    claims, flushes = faults.runs("claim"), faults.runs("complete")
    for count in range(1, LONE + 1):
        await workshop.start_one("quick")
        workshop.have_due()
        await workshop.events.seen("job_completed", count=count)
    assert faults.runs("complete") == flushes + LONE
    # Now and then a heartbeat of before has another one made.
    assert faults.runs("claim") <= claims + LONE + 5
    worker.advance(completer.FREE_AFTER_S)
    await until(lambda: workshop.ledger.rows("lease") == 0)
    assert faults.runs("complete") == flushes + LONE + 1


class SlowAnswers(Faults):
    """Claims whose answers are held back while they may not arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.may_arrive = asyncio.Event()
        self.may_arrive.set()

    async def around(self, purpose: str, call: Callable[[], Awaitable[T]]) -> T:
        answer = await super().around(purpose, call)
        if purpose == "claim":
            await self.may_arrive.wait()
        return answer


async def test_a_slot_that_becomes_free_during_a_claim_has_nothing_claimed_that_is_not_there(
    workshop: Workshop,
) -> None:
    may_end = asyncio.Event()

    async def held(job: Job[None]) -> None:
        await may_end.wait()

    workshop.handle("held", held)
    workshop.handle_quick()
    faults, clock = SlowAnswers(), ManualClock()
    worker = workshop.begin(clock, notifier=workshop.notifier, faults=faults, poll_ms=60_000)
    await worker.idle(60)
    first = await workshop.start_one("held")
    workshop.have_due()
    await workshop.events.seen("job_started", job_id=first)
    await worker.idle(60)
    claims = faults.runs("claim")
    faults.may_arrive.clear()
    second = await workshop.start_one("quick")
    workshop.have_due()
    await faults.ran("claim", claims + 1)
    may_end.set()
    await workshop.events.seen("job_completed", job_id=first)
    faults.may_arrive.set()
    await workshop.events.seen("job_completed", job_id=second)
    assert faults.runs("claim") == claims + 1
