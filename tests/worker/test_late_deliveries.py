"""Events that nobody had subscribed to when they were published reach the handlers that do."""

from dataclasses import replace
from typing import Any

from holdfast.commands.start import StartRequest, publish_event, start_chains
from holdfast.core.records import NewBlocker, NewJob
from holdfast.core.subscriptions import Subscription
from holdfast.notify.base import Hint
from holdfast.storage.id_generator import new_id
from holdfast.worker.job import Job
from tests.support.manual_clock import ManualClock
from tests.support.until import until
from tests.worker.workshop import Workshop

EVENT = "order.placed"


class Subscriber:
    """A handler that remembers what it was told."""

    def __init__(self) -> None:
        self.orders: list[int] = []

    async def __call__(self, job: Job[int]) -> None:
        self.orders.append(job.input)


def subscribed(workshop: Workshop, *names: str) -> list[Subscriber]:
    """Register handlers of the event."""
    made = []
    for name in names:
        subscriber = Subscriber()
        workshop.handle(f"{EVENT}/{name}", subscriber, event=EVENT)
        made.append(subscriber)
    return made


async def publish(workshop: Workshop, *orders: int) -> None:
    for order in orders:
        await workshop.run(publish_event(workshop.store, event(order)))


def event(order: int) -> NewJob:
    job_id = new_id()
    return NewJob(id=job_id, chain_id=job_id, type=EVENT, input=str(order))


async def test_an_event_published_before_anybody_subscribed_is_delivered_at_the_start(
    workshop: Workshop,
) -> None:
    await publish(workshop, 1, 2)
    mail, stock = subscribed(workshop, "mail", "stock")
    await workshop.until_idle(clock=ManualClock())
    assert sorted(mail.orders) == sorted(stock.orders) == [1, 2]
    await publish(workshop, 3)
    await workshop.until_idle(clock=ManualClock())
    assert sorted(mail.orders) == sorted(stock.orders) == [1, 2, 3]


async def test_an_event_that_raced_with_the_subscription_is_delivered_with_a_heartbeat(
    workshop: Workshop,
) -> None:
    (mail,) = subscribed(workshop, "mail")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await worker.asleep(15)
    # Its publisher read the subscriptions before the worker wrote its own.
    await workshop.run(workshop.store.jobs.insert([event(7)]))
    worker.advance(15)
    await workshop.events.seen("job_completed", type=f"{EVENT}/mail")
    await worker.stop()
    assert mail.orders == [7]


async def test_late_deliveries_send_hints_to_the_workers_of_other_handlers_and_to_waiting_clients(
    workshop: Workshop,
) -> None:
    other = Subscription(EVENT, "elsewhere")
    await workshop.run(workshop.store.events.subscribe([other]))
    subscribed(workshop, "mail")
    worker = workshop.begin(ManualClock(), notifier=workshop.notifier)
    await worker.asleep(15)
    late, behind = event(7), new_id()
    await workshop.run(workshop.store.jobs.insert([late]))
    waiting = NewJob(behind, behind, "ship", "{}", blockers=1)
    request = StartRequest(waiting, None, (NewBlocker(behind, 0, late.id),))
    await workshop.run(start_chains(workshop.store, [request]))
    heard: list[Hint] = []
    workshop.notifier.listen(heard.append)
    awaited = Hint("awaited", ids=(late.id,))
    workshop.notifier.send([awaited])
    await until(lambda: awaited in heard)
    worker.advance(15)
    wanted = {Hint("due", other.job_type), Hint("due", "ship"), Hint("ended", ids=(late.id,))}
    await until(lambda: wanted <= set(heard))
    await worker.stop()


async def test_more_events_than_one_batch_are_delivered_in_one_go(workshop: Workshop) -> None:
    await publish(workshop, *range(1_100))
    (mail,) = subscribed(workshop, "mail")
    report = await workshop.until_idle(clock=ManualClock(), slots=20)
    assert report.counters["processed"] == 1_100
    assert sorted(mail.orders) == list(range(1_100))


async def test_an_event_without_any_handler_waits(workshop: Workshop) -> None:
    await publish(workshop, 1)

    async def other(job: Job[Any]) -> None: ...

    workshop.handle("other", other)
    await workshop.until_idle()
    (waiting,) = await workshop.run(workshop.store.events.waiting(EVENT, 10))
    assert waiting.input == "1"


async def test_a_new_handler_gets_the_stored_events_that_it_asks_for(workshop: Workshop) -> None:
    subscribed(workshop, "mail")
    await workshop.until_idle(clock=ManualClock())
    await publish(workshop, 1, 2)
    count = Subscriber()
    made = workshop.handle(f"{EVENT}/count", count, event=EVENT)
    workshop.types[made.name] = replace(made, since=0)
    for _ in range(2):
        await workshop.until_idle(clock=ManualClock())
        assert sorted(count.orders) == [1, 2]
    await publish(workshop, 3)
    await workshop.until_idle(clock=ManualClock())
    assert sorted(count.orders) == [1, 2, 3]
