"""A worker tells of a chain's end when somebody said that they wait for it, and is silent otherwise."""

import asyncio
from typing import Any

from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.errors import Permanent
from holdfast.core.records import NewBlocker, NewJob
from holdfast.notify.base import Hint
from holdfast.storage.id_generator import new_id
from holdfast.worker.job import Job
from holdfast.worker.notifications import AWAITED_S, MAX_AWAITED, AwaitedChains
from tests.support.manual_clock import ManualClock
from tests.support.until import until
from tests.worker.workshop import Workshop


class Ear(list[Hint]):
    """Everything that was sent through a workshop's notifier since; whoever listened before hears it earlier."""

    def __init__(self, workshop: Workshop) -> None:
        super().__init__()
        self._notifier = workshop.notifier
        workshop.notifier.listen(self.append)

    async def heard_too(self, hint: Hint) -> None:
        """Send a hint and wait until everybody has heard it."""
        self._notifier.send([hint])
        await until(lambda: hint in self)

    @property
    def ended(self) -> list[str]:
        return [id for hint in self if hint.kind == "ended" for id in hint.ids]


async def test_hints_are_sent_only_for_awaited_chains(workshop: Workshop) -> None:
    go_on = asyncio.Event()

    async def slow(job: Job[Any]) -> None:
        await go_on.wait()

    workshop.handle("slow", slow)
    async with workshop.working(notifier=workshop.notifier):
        _, second = await workshop.start("slow", count=2)
        workshop.have_due()
        await workshop.events.seen("job_started", count=2)
        ear = Ear(workshop)
        await ear.heard_too(Hint("awaited", ids=(second,)))
        go_on.set()
        await workshop.events.seen("job_completed", count=2)
        await until(lambda: bool(ear.ended))
    assert ear.ended == [second]


async def test_a_failure_sends_hints_for_those_that_fail_with_it(workshop: Workshop) -> None:
    go_on = asyncio.Event()

    async def fails(job: Job[Any]) -> None:
        await go_on.wait()
        raise Permanent("no")

    workshop.handle("fails", fails)
    async with workshop.working(notifier=workshop.notifier):
        first = await workshop.start_one("fails")
        waiter = new_id()
        job = NewJob(id=waiter, chain_id=waiter, type="nobody", input="1", blockers=1)
        edges = (NewBlocker(waiter, 0, first),)
        await workshop.run(start_chains(workshop.store, [StartRequest(job, None, edges)]))
        workshop.have_due()
        await workshop.events.seen("job_started")
        ear = Ear(workshop)
        await ear.heard_too(Hint("awaited"))
        go_on.set()
        await until(lambda: len(ear.ended) == 2)
    assert set(ear.ended) == {first, waiter}


async def test_a_chain_that_the_reaper_failed_sends_a_hint(workshop: Workshop) -> None:
    workshop.handle_quick()
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("reaper_ran")
    job_id = await workshop.start_one("elsewhere", max_attempts=1)
    ear = Ear(workshop)
    await ear.heard_too(Hint("awaited", ids=(job_id,)))
    assert await workshop.claim_for_nobody("elsewhere", lease_ms=1) == [job_id]
    await workshop.seen_in_time(worker, "job_reaped")
    await until(lambda: ear.ended == [job_id])
    await worker.stop()


def test_who_waits_is_forgotten_after_a_while() -> None:
    awaited = AwaitedChains()
    assert not awaited
    awaited.add(("1", "2"), now=0)
    assert awaited
    assert awaited.take("1", now=1)
    assert not awaited.take("1", now=1)
    assert not awaited.take("3", now=1)
    assert not awaited.take("2", now=AWAITED_S)
    awaited.add((), now=AWAITED_S)
    assert awaited.take("3", now=AWAITED_S + 1)
    assert not awaited.take("3", now=AWAITED_S * 2)
    assert not awaited


def test_of_very_many_awaited_chains_none_is_kept_one_by_one() -> None:
    awaited = AwaitedChains()
    for start in range(0, 30_000, 5_000):
        awaited.add(tuple(map(str, range(start, start + 5_000))), now=0)
    assert len(awaited._until) <= MAX_AWAITED
    assert awaited.take("29999", now=1)
