"""Rules of events: several subscribers, those that come late or leave, and producers that know none of them."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from holdfast.commands.start import Delivery, deliver_waiting, publish_events, subscribe_handlers
from holdfast.core.records import NewJob, Subscription
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from tests.model.machine import EVENTS, HANDLERS, Machine, maker, some_ids

events = st.sampled_from(EVENTS)
handlers = st.sampled_from(HANDLERS)


class Publishing(Machine):
    """Producers publish, handlers subscribe."""

    @rule(event=events, priority=st.integers(3, 6), delay_s=st.sampled_from([None, -5, 30]))
    def publish(self, event: str, priority: int, delay_s: int | None) -> None:
        id, more = new_id(), some_ids(len(HANDLERS))
        job = NewJob(
            id=id,
            chain_id=id,
            type=event,
            input="6",
            priority=priority,
            at=None if delay_s is None else self.now + delay_s * 1_000_000,
        )
        (deliveries,) = self.same(
            lambda store: publish_events(store, [job], maker(more), now=self.now)
        )
        expected = self.model.publish(job, more, self.now)
        assert [each.id for each in deliveries] == expected

    @rule(event=events, names=st.lists(handlers, min_size=1, unique=True))
    def subscribe(self, event: str, names: list[str]) -> None:
        ids = some_ids(len(HANDLERS) * (len(self.model.jobs) + 1))
        mine = [Subscription(event, name) for name in names]
        (delivered,) = self.same(
            lambda store: _counts(subscribe_handlers(store, mine, maker(ids), now=self.now))
        )
        self.model.subscriptions |= {(event, name) for name in names}
        assert delivered == self.model.deliver(event, ids, self.now)

    @rule(event=events, name=handlers)
    def unsubscribe(self, event: str, name: str) -> None:
        gone = self.same(lambda store: store.events.unsubscribe([Subscription(event, name)]))
        assert bool(gone) == ((event, name) in self.model.subscriptions)
        self.model.subscriptions.discard((event, name))

    @rule(event=events)
    def deliver_what_waits(self, event: str) -> None:
        ids = some_ids(len(HANDLERS) * (len(self.model.jobs) + 1))
        delivered = self.same(
            lambda store: _count(deliver_waiting(store, event, maker(ids), now=self.now))
        )
        assert delivered == self.model.deliver(event, ids, self.now)


def _counts(op: Op[list[Delivery]]) -> Op[list[int]]:
    return [each.count for each in (yield from op)]


def _count(op: Op[Delivery]) -> Op[int]:
    return (yield from op).count
