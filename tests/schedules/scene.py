"""An application with schedules at a time that the test moves."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast import Holdfast, Job
from holdfast.core.duration import milliseconds
from holdfast.core.events import Event
from holdfast.core.instants import to_instant
from holdfast_schedules import Schedules, add_schedules, slot_of
from holdfast_testing.kit import Kit
from holdfast_testing.test_clock import MovedClock

MORNING = datetime(2031, 3, 3, 8, 30, tzinfo=UTC)


class Report(msgspec.Struct):
    """What a report is about."""

    customer: int


class FixedClock(MovedClock):
    """A clock that goes on only when the test moves it."""

    def __init__(self, began: datetime) -> None:
        super().__init__()
        self._now = to_instant(began)

    def now(self) -> int:
        return self._now

    def instant(self) -> int | None:
        return self._now

    def advance(self, duration: Any) -> None:
        self._now += milliseconds(duration) * 1000

    def set(self, moment: datetime) -> None:
        self._now = to_instant(moment)


class ScheduleScene:
    """One application on a database, at 08:30 of a Monday; `ran` is what its handler got."""

    def __init__(self, url: str, began: datetime = MORNING) -> None:
        self.url = url
        self.is_postgres = url.startswith("postgres")
        self.events: list[Event] = []
        self.ran: list[tuple[int, datetime | None]] = []
        self.app = Holdfast(url)
        self.app.observe(self)
        self.schedules: Schedules = add_schedules(self.app)
        self.clock = FixedClock(began)

        @self.app.job("report.send")
        def send(job: Job[Report]) -> str:
            scheduled = slot_of(job)
            self.ran.append((job.input.customer, scheduled.slot if scheduled else None))
            return "sent"

        self.send = send
        self.kit = Kit(self.app, url, clock=self.clock)

    def close(self) -> None:
        self.kit.close()
        self.app.close()

    def observe(self, event: Event) -> None:
        self.events.append(event)

    def told(self, name: str) -> list[dict[str, Any]]:
        """The fields of the events of a name."""
        return [each.fields for each in self.events if each.name == name]

    def set(self, name: str, customer: int = 7, **options: Any) -> Any:
        """Set a schedule in a transaction of its own."""
        with self.app.transaction() as tx:
            return self.schedules.set(tx, name, "report.send", Report(customer), **options)

    def at(self, day: int, hour: int, minute: int = 0, second: int = 0) -> None:
        """Go to a time and let everything happen that is due."""
        self.clock.set(datetime(2031, 3, day, hour, minute, second, tzinfo=UTC))
        self.kit.run_until_idle()

    def slots(self) -> list[str]:
        """The due times for which the handler ran."""
        return [f"{slot:%d %H:%M}" for _, slot in self.ran if slot is not None]
