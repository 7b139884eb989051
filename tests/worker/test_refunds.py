"""An attempt whose handler was not called used nothing: what it was charged of a rate is given back."""

from __future__ import annotations

from typing import Any

from holdfast import Rate
from holdfast.core.partitions import LimitedClaim, PartitionRule, SignalMark
from holdfast.core.records import PRIORITIES, LeaseClass
from holdfast.notify.base import Hint
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op, Statement
from tests.support.manual_clock import ManualClock
from tests.support.until import until
from tests.worker.test_claiming import Crowd
from tests.worker.workshop import Workshop

RATE = Rate(100, "1h", by="model", cost="tokens")
GATE = "ask#gpt"


async def charged(workshop: Workshop) -> int:
    """What counts of the rate."""

    def read() -> Op[int]:
        rows = yield Statement("cost_steps", {"gate": GATE})
        return sum(cost for _, cost in rows)

    found: int = await workshop.run(read())
    return found


async def start(workshop: Workshop, **fields: Any) -> str:
    return await workshop.start_one(
        "ask", {"model": "gpt", "tokens": 60}, gate=GATE, cost=60, **fields
    )


async def suspected(workshop: Workshop) -> str:
    """Start a job whose workers died twice already; those are not counted."""
    id = await start(workshop)
    for _ in range(2):
        await workshop.run(workshop.store.jobs.trigger([id]))
        lease = LeaseClass(new_id(), 1, 0, 1, 1)
        marks = tuple(SignalMark(each) for each in PRIORITIES)
        claim = LimitedClaim("nobody", "ask", 1, lease, PartitionRule("ask"), marks=marks)
        answer = await workshop.run(workshop.store.jobs.claim_limited(claim))
        assert [each.id for each in answer.jobs] == [id]
        assert await workshop.reap_as_if_later() == [id]
    return id


async def test_a_job_that_waits_to_run_alone_and_is_given_back_costs_nothing(
    workshop: Workshop,
) -> None:
    crowd = Crowd()
    workshop.handle("work", crowd)
    workshop.handle("ask", Crowd(), rates=[RATE])
    suspect = await suspected(workshop)
    await workshop.start("work")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", type="work")
    await workshop.run(workshop.store.jobs.trigger([suspect]))
    workshop.notifier.send([Hint("look", "ask")])
    await until(lambda: len(workshop.ledger.leases()) == 2)
    assert await charged(workshop) == 60
    worker.worker.stop()
    await workshop.events.seen("job_released", job_id=suspect)
    assert await charged(workshop) == 0
    crowd.go.set()
    report = await worker.ended()
    assert (report.abandoned, report.released) == (0, 1)
    record = await workshop.job(suspect)
    assert (record.state, record.attempt) == ("pending", 2)


async def test_a_handler_that_was_called_has_cost_what_was_said(workshop: Workshop) -> None:
    crowd = Crowd()
    workshop.handle("ask", crowd, rates=[RATE])
    id = await start(workshop)
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await workshop.events.seen("job_started", job_id=id)
    report = await worker.stop(times=2)
    assert report.abandoned == 0
    assert (await workshop.job(id)).state == "pending"
    assert await charged(workshop) == 60
