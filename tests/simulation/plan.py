"""The plan of a run: which jobs are started when, and what goes wrong when. All of it follows from the seed."""

import random
from typing import Literal, NamedTuple

import msgspec

Kind = Literal[
    "kill", "pause", "stop", "cut", "lost_answers", "swallow", "slow", "crash", "failover", "deaf"
]
"""A process dies, sleeps past its lease, is asked to end; its line is cut, answers are lost, requests vanish, are slow;
the server dies, or is cut off from its standby, which is promoted then; hints are lost."""

PURPOSES = (
    *("", "", "claim", "complete", "heartbeat", "reaper", "transaction", "steps", "fan-in"),
    *("streams", "client"),
)


class PlannedJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job to be started; what its handler does follows from its numbers."""

    number: int
    at: float
    type: str
    ms: int = 0
    fails: int = 0
    links: int = 0
    key: str = ""
    parts: int = 0
    undone: bool = False
    """Whether the transaction that starts it is rolled back."""
    cancel_after: float = 0.0

    @property
    def count(self) -> int:
        """How many jobs come of it."""
        if self.undone:
            return 0
        return 1 + self.links + self.parts + (self.type in ("spread", "function"))


class PlannedEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event to be published; it is also the event's data."""

    number: int
    at: float
    key: str
    ms: int = 0
    fails: int = 0
    """How often its consumer fails at it; if that is more often than it is tried, it is parked."""
    undone: bool = False


class PlannedFault(msgspec.Struct, frozen=True, omit_defaults=True):
    """What goes wrong, when, for which process, and for how long."""

    at: float
    kind: Kind
    process: int = 0
    seconds: float = 0.0
    purpose: str = ""


class Plan(msgspec.Struct, frozen=True):
    """All of a run but its randomness, which is the seed's."""

    seed: int
    processes: int
    slots: int
    types: list[str]
    """What its workers work on."""
    one_by_one: int
    """Every so many jobs one is started in a request of its own; the others of a transaction share one."""
    jobs: list[PlannedJob]
    faults: list[PlannedFault]
    events: list[PlannedEvent] = []
    has_cycles: bool = False
    has_hints: bool = True
    has_standby: bool = False


TYPES = {
    "work": 1,
    "paid": 2,
    "staged": 1,
    "chain": 2,
    "join": 1,
    "spread": 1,
    "limited": 2,
    "rated": 1,
    "ordered": 2,
    "function": 1,
    "long": 1,
    "doomed": 1,
}
"""The types that are started, and how often beside the others."""
OTHERS = sorted({*TYPES} - {"work"})
SLOW = {"chain": (0, 5, 80), "function": (0, 5, 80, 600), "long": (2_200, 2_500)}
"""Of types whose time adds up or has to be long: what it may be."""
MOST = {"long": 3, "rated": 8, "function": 8}
"""Of types that take their time: so many in a seed, or little else would be left when the faults are over."""
NEEDS = {"join": ("part",), "spread": ("join", "part"), "function": ("work",)}
"""What a type starts itself."""


CALM_EVERY = 8
"""Of so many seeds there is one whose jobs come over a while; in the others they come in a rush."""


class Pace(NamedTuple):
    """How much of what there is, and how closely it follows."""

    types: tuple[int, int]
    work: int
    """How often there is plain work beside each of the others."""
    spreads_s: tuple[float, ...]
    moments: tuple[int, ...]
    """In so many moments jobs are started."""
    ms: tuple[int, ...]
    fails: tuple[int, ...]
    one_by_one: int
    cancelled: float
    undone: float
    slots: tuple[int, ...]
    processes: tuple[int, ...]
    faults: tuple[int, int]
    faults_s: float
    """So long after the last jobs may have been started faults begin."""


CALM = Pace(
    types=(2, 5),
    work=1,
    spreads_s=(0.3, 1, 2.5),
    moments=(2, 4, 8),
    ms=(0, 1, 5, 20, 80, 300),
    fails=(0, 0, 0, 0, 1, 2),
    one_by_one=5,
    cancelled=0.05,
    undone=0.06,
    slots=(3, 5, 10),
    processes=(2, 2, 3),
    faults=(4, 8),
    faults_s=1.5,
)
RUSH = Pace(
    types=(1, 2),
    work=6,
    spreads_s=(0.1, 0.4),
    moments=(1, 2),
    ms=(0, 0, 5, 80),
    fails=(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1),
    one_by_one=25,
    cancelled=0.02,
    undone=0.02,
    slots=(10, 20),
    processes=(2,),
    faults=(3, 4),
    faults_s=0.5,
)


def make_plan(seed: int, jobs: int = 50) -> Plan:
    """Return the plan of a seed.

    A seed has some of the types, not all: more of one kind meet each other, and every claim looks for fewer.
    """
    draw = random.Random(f"plan {seed}")
    pace = RUSH if seed % CALM_EVERY else CALM
    types = ["work", *draw.sample(OTHERS, draw.randint(*pace.types))]
    spread_s = draw.choice(pace.spreads_s)
    moments = [draw.uniform(0, spread_s) for _ in range(draw.choice(pace.moments))]
    planned: list[PlannedJob] = []
    left = {each: MOST.get(each, 2 * jobs) for each in types}
    often = {**TYPES, "work": pace.work}
    while sum(each.count for each in planned) < jobs:
        weights = [often[each] if left[each] else 0 for each in types]
        (type,) = draw.choices(types, weights)
        left[type] -= 1
        planned.append(_job(draw, pace, len(planned), type, draw.choice(moments)))
    processes = draw.choice(pace.processes)
    ends, count = spread_s + pace.faults_s, draw.randint(*pace.faults)
    faults = [_fault(draw, draw.uniform(0.02, ends), processes) for _ in range(count)]
    has_standby = seed % 5 == 2
    if has_standby:
        faults = [_with_standby(each) for each in faults]
    return Plan(
        seed,
        processes,
        draw.choice(pace.slots),
        sorted({*types, *(more for each in types for more in NEEDS.get(each, ()))}),
        pace.one_by_one,
        sorted(planned, key=lambda each: (each.at, each.undone)),
        sorted(faults, key=lambda each: each.at),
        events=_events(draw, spread_s) if seed % 5 == 1 else [],
        has_cycles=seed % 5 == 0,
        has_hints=draw.random() < 0.5,
        has_standby=has_standby,
    )


def _job(draw: random.Random, pace: Pace, number: int, type: str, at: float) -> PlannedJob:
    ms = draw.choice(SLOW.get(type) or pace.ms)
    fails = draw.choice(pace.fails) if type != "long" else 0
    is_cancelled = draw.random() < pace.cancelled
    return PlannedJob(
        number,
        at,
        type,
        ms=ms,
        fails=fails,
        links=draw.randint(1, 3) if type == "chain" else 0,
        key=draw.choice("abc") if type in ("limited", "ordered", "function") else "",
        parts=draw.randint(1, 4) if type in ("join", "spread") else 0,
        undone=draw.random() < pace.undone,
        cancel_after=draw.uniform(0.01, 3) if is_cancelled else 0.0,
    )


def _events(draw: random.Random, spread_s: float) -> list[PlannedEvent]:
    """Events in transactions of one to three."""
    found: list[PlannedEvent] = []
    for _ in range(8):
        at, undone = draw.uniform(0, spread_s), draw.random() < 0.1
        for _ in range(draw.randint(1, 3)):
            ms, fails = draw.choice((0, 0, 5, 50, 300)), draw.choice((0, 0, 0, 0, 0, 0, 1, 100))
            found.append(PlannedEvent(len(found), at, draw.choice("abcd"), ms, fails, undone))
    return sorted(found, key=lambda each: (each.at, each.number))


def _fault(draw: random.Random, at: float, processes: int) -> PlannedFault:
    kind: Kind = draw.choice(
        (
            *("kill", "kill", "pause", "pause", "stop", "cut", "lost_answers", "lost_answers"),
            *("swallow", "slow", "crash", "deaf"),
        )
    )
    seconds = {
        "kill": draw.uniform(0.05, 2),
        "pause": draw.choice((draw.uniform(0.01, 1.5), draw.uniform(2, 4), draw.uniform(2, 4))),
        "stop": draw.uniform(0.05, 2),
        "crash": draw.uniform(0.05, 1.5),
    }.get(kind) or draw.choice((draw.uniform(0.005, 0.3), draw.uniform(0.3, 3)))
    purpose = draw.choice(PURPOSES) if kind in ("cut", "lost_answers", "swallow", "slow") else ""
    return PlannedFault(at, kind, draw.randrange(processes), seconds, purpose)


def _with_standby(fault: PlannedFault) -> PlannedFault:
    """What a server that has a standby does not come back from."""
    return msgspec.structs.replace(fault, kind="failover") if fault.kind == "crash" else fault
