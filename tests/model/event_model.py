"""Events in the model: subscriptions, publishing and late delivery."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from holdfast.core.ids import delivery_id
from holdfast.core.instants import Instant
from holdfast.core.records import Ending, NewJob
from tests.model.model import Model


@dataclass
class EventModel(Model):
    """The model with its events."""

    subscriptions: set[tuple[str, str]] = field(default_factory=set)

    def publish(self, event: NewJob, now: Instant) -> list[str]:
        """Write one job per subscription, or one that waits for a subscriber; return their ids."""
        handlers = self._handlers(event.type)
        if not handlers:
            self.add(event, [], now)
            return [event.id]
        ids = [delivery_id(event.id, f"{event.type}/{handler}") for handler in handlers]
        for id, handler in zip(ids, handlers, strict=True):
            type = f"{event.type}/{handler}"
            delivery = msgspec.structs.replace(event, id=id, chain_id=id, type=type)
            self.add(delivery, [], now)
        return ids

    def deliver(self, event: str, now: Instant) -> int:
        """Deliver what was published before anybody subscribed."""
        handlers = self._handlers(event)
        waiting = sorted(
            each.new.id
            for each in self.jobs.values()
            if each.new.type == event and each.state == "pending"
        )
        if not handlers or not waiting:
            return 0
        endings = []
        for job_id in waiting:
            new = self.jobs[job_id].new
            ids = []
            for handler in handlers:
                ids.append(delivery_id(job_id, f"{event}/{handler}"))
                delivery = NewJob(
                    id=ids[-1],
                    chain_id=ids[-1],
                    type=f"{event}/{handler}",
                    input=new.input,
                    priority=new.priority,
                    at=new.at,
                )
                self.add(delivery, [], now)
            output = msgspec.json.encode({"delivered": ids}).decode()
            endings.append(Ending(job_id, "completed", output))
        self.end_outside(endings, now)
        return len(waiting)

    def _handlers(self, event: str) -> list[str]:
        return sorted(handler for name, handler in self.subscriptions if name == event)
