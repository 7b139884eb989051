"""Cycles in the pure core: what a declaration means, what is due, and a year of eight schedulers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

import pytest

from holdfast.core.cycle import (
    CatchUp,
    ClosedSlot,
    CycleSpec,
    CycleState,
    Slot,
    cycle_spec,
    plan_slots,
    ready_at,
    retry_pause_ms,
    schedule_text,
    slot_at,
)
from holdfast.core.errors import (
    HandlerInvalid,
    InvalidDuration,
    InvalidName,
    InvalidOption,
    InvalidSchedule,
)
from holdfast.core.instants import Instant
from holdfast.core.schedule import Interval, parse_schedule

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
NOON = 1_735_732_800 * SECOND
"""2025-01-01T12:00:00Z."""


def _nothing(run: Any) -> None: ...


def _yielding(run: Any) -> Iterator[int]:
    yield 1


def _spec(**options: Any) -> CycleSpec:
    return cycle_spec(_nothing, "cleanup", **({"every": "1h"} | options))


def _state(**fields: Any) -> CycleState:
    known = {"name": "cleanup", "paused": False, "last_slot": NOON, "now": NOON}
    return CycleState(**{**known, **fields})


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, InvalidSchedule),
        ({"every": "1m", "cron": "* * * * *"}, InvalidSchedule),
        ({"every": "1m", "tz": "UTC"}, InvalidSchedule),
        ({"every": "1ms"}, InvalidSchedule),
        ({"every": "often"}, InvalidDuration),
        ({"cron": "x"}, InvalidSchedule),
        ({"cron": "* * * * *", "tz": "Nowhere"}, InvalidSchedule),
        ({"every": "1m", "missed": "some"}, InvalidSchedule),
        ({"every": "1m", "jitter": "1m"}, InvalidOption),
        ({"cron": "0 3 * * *", "missed": "none", "jitter": "5m"}, InvalidOption),
        ({"every": "1m", "attempts": 0}, InvalidOption),
        ({"every": "1m", "attempts": "3"}, InvalidOption),
        ({"every": "1m", "attempts": float("nan")}, InvalidOption),
        ({"every": "1m", "timeout": 0}, InvalidOption),
        ({"every": "1m", "singleton": "no"}, InvalidOption),
        ({"cron": 5}, InvalidOption),
        ({"cron": "* * * * *", "tz": ""}, InvalidSchedule),
    ],
)
def test_a_declaration_without_meaning_is_refused(
    options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        cycle_spec(_nothing, "cleanup", **options)


@pytest.mark.parametrize("handler", [None, lambda: None, lambda run, more: None, _yielding])
def test_a_handler_that_cannot_be_called_with_a_run_is_refused(handler: Any) -> None:
    with pytest.raises(HandlerInvalid):
        cycle_spec(handler, "cleanup", every="1m")


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a/b", "x" * 101, "outbox", "tick", None, 7])
def test_a_name_that_means_something_else_is_refused(name: Any) -> None:
    with pytest.raises(InvalidName):
        cycle_spec(_nothing, name, every="1m")


@pytest.mark.parametrize(
    "options", [{"every": "90s"}, {"every": 2.5}, {"cron": "17 3 * * *", "tz": "America/Santiago"}]
)
def test_a_schedule_can_be_read_back_from_its_text(options: dict[str, Any]) -> None:
    schedule = cycle_spec(_nothing, "cleanup", **options).schedule
    assert parse_schedule(*schedule_text(schedule)) == schedule


def test_a_slot_is_named_after_its_instant() -> None:
    assert slot_at(NOON) == Slot("2025-01-01T12:00:00Z", NOON)


def test_nothing_is_due_before_the_next_slot() -> None:
    plan = plan_slots(_spec(), _state(now=NOON + HOUR - 1))
    assert plan.slots == ()
    assert plan.next_at == NOON + HOUR


def test_a_slot_missed_by_an_hour_is_caught_up_once() -> None:
    late = _state(now=NOON + 2 * HOUR + 5 * MINUTE)
    assert plan_slots(_spec(), late).slots == (slot_at(NOON + 2 * HOUR),)
    done = _state(now=late.now, last_slot=NOON + 2 * HOUR)
    assert plan_slots(_spec(), done).slots == ()


@pytest.mark.parametrize(("missed", "hours"), [("none", []), ("last", [5]), ("all(3)", [3, 4, 5])])
def test_missed_slots_are_caught_up_by_policy(missed: str, hours: list[int]) -> None:
    plan = plan_slots(_spec(missed=missed), _state(now=NOON + 5 * HOUR + 30 * MINUTE))
    assert plan.slots == tuple(slot_at(NOON + hour * HOUR) for hour in hours)


def test_a_paused_cycle_has_nothing_due_but_what_was_asked_for() -> None:
    asked = Slot("now-1", NOON, True)
    plan = plan_slots(_spec(), _state(paused=True, now=NOON + HOUR, requests=(asked,)))
    assert plan.slots == (asked,)


def test_a_slot_that_rests_holds_back_the_later_ones_until_it_may_run() -> None:
    resting = ClosedSlot(slot_at(NOON + HOUR).name, NOON + 2 * HOUR + MINUTE, False)
    state = _state(now=NOON + 2 * HOUR, closed=(resting,))
    plan = plan_slots(_spec(missed="all(5)"), state)
    assert plan.slots == ()
    assert plan.next_at == resting.until


def test_jitter_delays_a_slot_by_the_same_time_everywhere() -> None:
    spec = _spec(jitter="10m")
    ready = ready_at(spec, NOON + HOUR)
    assert NOON + HOUR <= ready < NOON + HOUR + 10 * MINUTE
    before, after = _state(now=max(NOON + HOUR, ready - 1)), _state(now=ready)
    assert plan_slots(spec, before).next_at == ready
    assert plan_slots(spec, after).slots == (slot_at(NOON + HOUR),)


def test_a_failed_slot_rests_longer_each_time() -> None:
    assert [retry_pause_ms(runs) for runs in (1, 2, 3, 9, 999)] == [
        30_000,
        60_000,
        120_000,
        3_600_000,
        3_600_000,
    ]


@dataclass
class _Row:
    token: int = 0
    state: str = "running"
    until: Instant = 0


@dataclass
class _Database:
    """The slot record's rules in memory, without the singleton's lock: they have to suffice."""

    last_slot: Instant
    rows: dict[str, _Row] = field(default_factory=dict)
    completed: Counter[str] = field(default_factory=Counter)

    def state(self, now: Instant) -> CycleState:
        closed = [
            ClosedSlot(name, row.until, row.state == "running")
            for name, row in self.rows.items()
            if row.state != "completed" and row.until > now
        ]
        return CycleState("cleanup", False, self.last_slot, now, (), tuple(closed))

    def claim(self, slot: Slot, token: int, now: Instant) -> bool:
        running = [
            name
            for name, row in self.rows.items()
            if row.state == "running" and row.until > now and name != slot.name
        ]
        row = self.rows.get(slot.name)
        if running or slot.due_at <= self.last_slot:
            return False
        if row is not None and (row.state == "completed" or row.until > now):
            return False
        self.rows = {slot.name: _Row(token, "running", now + MINUTE)}
        return True

    def end(self, slot: Slot, token: int, succeeded: bool, now: Instant) -> None:
        row = self.rows.get(slot.name)
        if row is None or row.token != token or row.state != "running":
            return
        if succeeded:
            row.state = "completed"
            self.completed[slot.name] += 1
            self.last_slot = max(self.last_slot, slot.due_at)
        else:
            row.state, row.until = "failed", now + 30 * SECOND


class _Year:
    """Eight schedulers that look, claim a moment later, and succeed, fail, stall or die."""

    def __init__(self, spec: CycleSpec, pace: int) -> None:
        self.database = _Database(NOON)
        self._spec = spec
        self._pace = pace
        self._random = Random(7)
        self._order = count()
        self._agenda: list[tuple[Instant, int, Callable[[Instant], None]]] = []

    def run(self) -> None:
        for _ in range(8):
            self._later(NOON, HOUR, self._look)
        while self._agenda and self._agenda[0][0] < NOON + 365 * DAY:
            now, _, act = heappop(self._agenda)
            act(now)

    def _later(self, now: Instant, within: int, act: Callable[[Instant], None]) -> None:
        at = now + 1 + self._random.randrange(within)
        heappush(self._agenda, (at, next(self._order), act))

    def _look(self, now: Instant) -> None:
        for slot in plan_slots(self._spec, self.database.state(now)).slots:
            self._later(now, 10 * SECOND, partial(self._claim, slot))
        self._later(now, 2 * self._pace, self._look)

    def _claim(self, slot: Slot, now: Instant) -> None:
        token = next(self._order)
        fate = self._random.random()
        if self.database.claim(slot, token, now) and fate > 0.02:
            lasts = 3 * MINUTE if fate < 0.1 else MINUTE
            self._later(now, lasts, partial(self.database.end, slot, token, fate > 0.2))


@pytest.mark.parametrize(
    ("spec", "pace"),
    [
        (_spec(every="6h"), 2 * HOUR),
        (_spec(every="6h", missed="all(10)", jitter="20m"), 2 * HOUR),
        (_spec(every=None, cron="30 2 * * *", tz="America/Santiago"), 12 * HOUR),
    ],
)
def test_eight_schedulers_complete_every_slot_of_a_year_once(spec: CycleSpec, pace: int) -> None:
    year = _Year(spec, pace)
    year.run()
    completed = year.database.completed
    assert set(completed.values()) == {1}
    expected = spec.schedule.latest_between(NOON, NOON + 365 * DAY - pace * 4, 10_000)
    assert [each for each in expected if slot_at(each).name not in completed] == []


def test_the_spec_keeps_what_it_was_told() -> None:
    spec = _spec(missed="all(7)", singleton=False, timeout="5m", attempts=2, sharded=True)
    assert spec.schedule == Interval("1h")
    assert spec.missed == CatchUp(7)
    assert (spec.singleton, spec.timeout_ms, spec.attempts, spec.sharded) == (
        False,
        300_000,
        2,
        True,
    )
