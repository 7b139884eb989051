"""Rules of events: several subscribers, those that come late or leave, and producers that know none of them."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from holdfast.commands.start import Delivery, deliver_waiting, publish_event, subscribe_handlers
from holdfast.core.records import NewJob
from holdfast.core.subscriptions import NewSubscription, Subscription
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from tests.model.machine import EVENTS, HANDLERS, Machine

events = st.sampled_from(EVENTS)
handlers = st.sampled_from(HANDLERS)


class Publishing(Machine):
    """Producers publish, handlers subscribe."""

    @rule(event=events, priority=st.integers(3, 6), delay_s=st.sampled_from([None, -5, 30]))
    def publish(self, event: str, priority: int, delay_s: int | None) -> None:
        id = new_id()
        job = NewJob(
            id=id,
            chain_id=id,
            type=event,
            input="6",
            priority=priority,
            at=None if delay_s is None else self.now + delay_s * 1_000_000,
        )
        published = self.same(lambda store: publish_event(store, job, now=self.now))
        expected = self.model.publish(job, self.now)
        assert [each.id for each in published.deliveries] == expected

    @rule(event=events, names=st.lists(handlers, min_size=1, unique=True))
    def subscribe(self, event: str, names: list[str]) -> None:
        mine = [NewSubscription(event, name) for name in names]
        (delivered,) = self.same(
            lambda store: _counts(subscribe_handlers(store, mine, now=self.now))
        )
        self.model.subscriptions |= {(event, name) for name in names}
        assert delivered == self.model.deliver(event, self.now)

    @rule(event=events, name=handlers)
    def unsubscribe(self, event: str, name: str) -> None:
        gone = self.same(lambda store: store.events.unsubscribe([Subscription(event, name)]))
        assert bool(gone) == ((event, name) in self.model.subscriptions)
        self.model.subscriptions.discard((event, name))

    @rule(event=events)
    def deliver_what_waits(self, event: str) -> None:
        delivered = self.same(lambda store: _count(deliver_waiting(store, event, now=self.now)))
        assert delivered == self.model.deliver(event, self.now)


def _counts(op: Op[list[Delivery]]) -> Op[list[int]]:
    return [each.count for each in (yield from op)]


def _count(op: Op[Delivery]) -> Op[int]:
    return (yield from op).count
