"""Cycles: what the code says of one, which of its slots are due, and the records of slots and runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from types import NoneType
from typing import Any, Literal

import msgspec

from holdfast.core.duration import Duration, format_duration, milliseconds
from holdfast.core.env_options import (
    DURATION,
    NUMBER,
    FromEnv,
    OptionReader,
    duration_text,
    resolve_options,
)
from holdfast.core.errors import InvalidName, InvalidOption, InvalidSchedule
from holdfast.core.instants import Instant, to_datetime
from holdfast.core.schedule import Cron, Interval, Schedule
from holdfast.core.signatures import Kinds, at_least_one, check_call, check_kind

LARGEST_CATCH_UP = 1_000
GRACE_MS = 300_000
"""A slot this late still counts as on time: ticks may come from outside, minutes apart."""

_ALL = re.compile(r"all\((\d{1,6})\)")


@dataclass(frozen=True, slots=True)
class CatchUp:
    """How many missed slots are caught up: 0 none, 1 the latest, n the latest n."""

    slots: int

    @classmethod
    def parse(cls, text: str) -> CatchUp:
        """Read `none`, `last` or `all(n)`."""
        word = text.strip().lower()
        if word in ("none", "last"):
            return cls(0 if word == "none" else 1)
        match = _ALL.fullmatch(word)
        if match is None or not 1 <= int(match[1]) <= LARGEST_CATCH_UP:
            raise InvalidSchedule(
                f"{text[:60]!r} is not a catch-up policy",
                help=f"use none, last or all(n) with n up to {LARGEST_CATCH_UP}",
            )
        return cls(int(match[1]))

    def __str__(self) -> str:
        """Return the form that `parse` reads."""
        return {0: "none", 1: "last"}.get(self.slots, f"all({self.slots})")


def due_slots(
    schedule: Schedule, last_slot: Instant, now: Instant, missed: CatchUp, grace_ms: int = GRACE_MS
) -> list[Instant]:
    """Return the slots to run now, oldest first.

    `last_slot` is the newest slot already decided, or when the cycle was first seen.
    """
    slots = schedule.latest_between(last_slot, now, max(missed.slots, 1))
    if missed.slots == 0:
        return [slot for slot in slots if now - slot <= grace_ms * 1000]
    return slots


def jitter_us(cycle: str, slot: Instant, limit_ms: int) -> int:
    """Return the delay of one slot in [0, limit), the same on every replica."""
    if limit_ms < 1:
        return 0
    digest = blake2b(f"{cycle}\0{slot}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % (limit_ms * 1000)


LOCK_PREFIX = "worker:scheduler:"
RESERVED = frozenset({"reaper", "outbox", "retention", "tick"})
"""Names of runners and runs that are always there."""

DEFAULT_ATTEMPTS = 3
DEFAULT_MISSED = CatchUp(1)
RETRY_BASE_MS = 30_000
RETRY_CAP_MS = 3_600_000

# A colon separates a cycle's name from its shard.
_NAME = re.compile(r"\w[\w.-]{0,99}")

_KINDS: Mapping[str, Kinds] = {
    "cron": (str, NoneType),
    "tz": (str, NoneType),
    "singleton": (bool,),
    "missed": (str,),
    "attempts": (int,),
    "sharded": (bool,),
    "max_items": (int, NoneType),
}

RunOutcome = Literal["running", "completed", "failed", "aborted", "crashed"]


@dataclass(frozen=True, slots=True)
class CycleSpec:
    """One cycle as the code declares it."""

    name: str
    handler: Callable[..., Any]
    schedule: Schedule
    singleton: bool = True
    missed: CatchUp = DEFAULT_MISSED
    jitter_ms: int = 0
    timeout_ms: int | None = None
    attempts: int = DEFAULT_ATTEMPTS
    sharded: bool = False
    max_items: int | None = None
    variables: Mapping[str, FromEnv[Any]] = field(default_factory=dict)
    """Which options come from the environment."""


def _reader_of(check: Callable[[str], object]) -> Callable[[FromEnv[Any], str], str]:
    """Return a reader of texts that a check accepts."""

    def read(_: FromEnv[Any], text: str) -> str:
        check(text)
        return text

    return read


def _interval(given: FromEnv[Any], text: str) -> str:
    Interval(duration_text(given, text))
    return duration_text(given, text)


_READERS: Mapping[str, OptionReader] = {
    "every": OptionReader("a duration of at least 1s, such as 5m", _interval),
    "cron": OptionReader(
        'a cron expression such as "0 9 * * mon-fri"', _reader_of(lambda text: Cron(text, "UTC"))
    ),
    "tz": OptionReader(
        "the IANA name of a time zone such as America/Santiago",
        _reader_of(lambda text: Cron("0 0 * * *", text)),
    ),
    "missed": OptionReader(
        f"none, last or all(n) with n up to {LARGEST_CATCH_UP}", _reader_of(CatchUp.parse)
    ),
    "jitter": DURATION,
    "timeout": DURATION,
    "attempts": NUMBER,
    "max_items": NUMBER,
}
"""The options that from_env works for."""


def resolve_cycle_options(
    name: str, options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, FromEnv[Any]]]:
    """Replace what comes from the environment by its value. Raises: ConfigError, InvalidOption."""
    return resolve_options(f"cycle {name}", options, _READERS)


def cycle_spec(
    handler: Callable[..., Any],
    name: str,
    *,
    every: Duration | None = None,
    cron: str | None = None,
    tz: str | None = None,
    singleton: bool = True,
    missed: str = "last",
    jitter: Duration = 0,
    timeout: Duration | None = None,
    attempts: int = DEFAULT_ATTEMPTS,
    sharded: bool = False,
    max_items: int | None = None,
    variables: Mapping[str, FromEnv[Any]] | None = None,
) -> CycleSpec:
    """Make a cycle from a decorator's options.

    Raises: InvalidName, HandlerInvalid, InvalidSchedule, InvalidOption.
    """
    _check_name(name)
    check_call(handler, "run")
    _check_kinds(
        cron=cron,
        tz=tz,
        singleton=singleton,
        missed=missed,
        attempts=attempts,
        sharded=sharded,
        max_items=max_items,
    )
    at_least_one("attempts", attempts)
    schedule = _schedule(every, cron, tz)
    policy = CatchUp.parse(missed)
    jitter_ms = milliseconds(jitter)
    _check_jitter(jitter_ms, schedule, policy)
    return CycleSpec(
        name=name,
        handler=handler,
        schedule=schedule,
        singleton=singleton,
        missed=policy,
        jitter_ms=jitter_ms,
        timeout_ms=None if timeout is None else at_least_one("timeout", milliseconds(timeout)),
        attempts=attempts,
        sharded=sharded,
        max_items=None if max_items is None else at_least_one("max_items", max_items),
        variables=variables or {},
    )


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in RESERVED:
        raise InvalidName(f"{repr(name)[:60]} is not a valid cycle name")


def _check_kinds(**options: object) -> None:
    for option, value in options.items():
        check_kind(option, value, _KINDS[option])


def _check_jitter(jitter_ms: int, schedule: Schedule, missed: CatchUp) -> None:
    limits = [schedule.interval_ms] if isinstance(schedule, Interval) else []
    if missed.slots == 0:
        # A slot that begins later than this counts as missed, and would never run.
        limits.append(GRACE_MS)
    if jitter_ms >= min(limits, default=jitter_ms + 1):
        raise InvalidOption(
            f"a jitter of {format_duration(jitter_ms)} is too long for this cycle",
            help=f"set less than {format_duration(min(limits))}",
        )


def _schedule(every: Duration | None, cron: str | None, tz: str | None) -> Schedule:
    if (every is None) == (cron is None):
        raise InvalidSchedule("a cycle needs either an interval or a cron expression")
    if every is not None:
        if tz is not None:
            raise InvalidSchedule("an interval cannot have a time zone", help="omit tz")
        return Interval(every)
    return Cron(cron or "", "UTC" if tz is None else tz)


def schedule_text(schedule: Schedule) -> tuple[str, str]:
    """Return a schedule as `parse_schedule` reads it, and its zone."""
    if isinstance(schedule, Interval):
        return f"every {format_duration(schedule.interval_ms)}", "UTC"
    return schedule.expression, schedule.zone.key


class Slot(msgspec.Struct, frozen=True):
    """One due instant of a cycle, or one request to run it now."""

    name: str
    due_at: Instant
    requested: bool = False


def slot_at(due_at: Instant) -> Slot:
    """Return the slot of an instant; its name is the same on every replica."""
    return Slot(to_datetime(due_at).strftime("%Y-%m-%dT%H:%M:%SZ"), due_at)


class ClosedSlot(msgspec.Struct, frozen=True):
    """A slot that nobody may take until an instant: it is running, or it pauses after a failed run."""

    name: str
    until: Instant
    is_running: bool


REQUESTED = "now-"
"""How the names of slots that were requested begin; no schedule would bring them back."""


class CycleState(msgspec.Struct, frozen=True):
    """What the database says of a cycle at one moment."""

    name: str
    paused: bool
    last_slot: Instant
    now: Instant
    requests: tuple[Slot, ...] = ()
    closed: tuple[ClosedSlot, ...] = ()

    @property
    def running(self) -> ClosedSlot | None:
        """The slot that is running now."""
        return next((each for each in self.closed if each.is_running), None)


class Plan(msgspec.Struct, frozen=True):
    """The slots to run now, oldest first, and when to look again."""

    slots: tuple[Slot, ...]
    next_at: Instant


def plan_slots(spec: CycleSpec, state: CycleState) -> Plan:
    """Decide what of a cycle is due: requests first, then its own slots unless it is paused."""
    slots: list[Slot] = list(state.requests)
    next_at = ready_at(spec, spec.schedule.next_after(max(state.last_slot, state.now)))
    closed = {each.name: each.until for each in state.closed}
    due = due_slots(spec.schedule, state.last_slot, state.now, spec.missed)
    for due_at in [] if state.paused else due:
        slot = slot_at(due_at)
        opens_at = max(ready_at(spec, due_at), closed.get(slot.name, due_at))
        if opens_at > state.now:
            # Later slots wait as well: ending one of them would decide this one.
            next_at = min(next_at, opens_at)
            break
        slots.append(slot)
    return Plan(tuple(slots), next_at)


def ready_at(spec: CycleSpec, slot: Instant) -> Instant:
    """Return when a slot begins: its instant and the jitter that all replicas share."""
    return slot + jitter_us(spec.name, slot, spec.jitter_ms)


def retry_pause_ms(runs: int) -> int:
    """Return how long a slot pauses after its nth failed run."""
    return min(RETRY_CAP_MS, RETRY_BASE_MS << min(runs - 1, 20))


class NewCycle(msgspec.Struct, frozen=True):
    """A cycle as a worker registers it."""

    name: str
    schedule: str
    zone: str
    singleton: bool
    missed: str


def new_cycles(cycles: Mapping[str, CycleSpec]) -> list[NewCycle]:
    """Return cycles as they are registered, by the names under which they are stored."""
    return [
        NewCycle(name, *schedule_text(each.schedule), each.singleton, str(each.missed))
        for name, each in sorted(cycles.items())
    ]


class NewRun(msgspec.Struct, frozen=True):
    """A run about to begin."""

    id: str
    name: str
    worker: str
    slot: str | None = None


class HeldSlot(msgspec.Struct, frozen=True):
    """A slot that a run holds; the token is the proof that every later write presents."""

    cycle: str
    slot: Slot
    token: str
    run_id: str
    runs: int


class CycleRecord(NewCycle, frozen=True):
    """A cycle as people see it: what was registered, and its state."""

    paused: bool
    paused_by: str | None
    paused_at: Instant | None
    last_slot: Instant
    running_slot: str | None
    held_by: str | None
    held_until: Instant | None


class RunRecord(msgspec.Struct, frozen=True):
    """A run of a cycle or a tick; one whose process died is `crashed`."""

    id: str
    name: str
    worker: str | None
    slot: str | None
    started_at: Instant
    seen_at: Instant
    finished_at: Instant | None
    outcome: RunOutcome
    counters: dict[str, Any]
    error: str | None
