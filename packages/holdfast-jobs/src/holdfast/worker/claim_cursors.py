"""Claim cursors: which types and priorities a claim probes, where each probe begins, and when to scan from the start.

What is probed follows what was found, so that a claim costs what it takes and not what there could be: a worker of two
hundred types probes a handful of them while it drains a backlog.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from holdfast.core.instants import Instant
from holdfast.core.records import DEFAULT_PRIORITY, PRIORITIES, ClaimedJob

START: tuple[Instant, str] = (0, "00000000-0000-0000-0000-000000000000")

FULL_SCAN_MIN_S = 0.25
FULL_SCAN_MAX_S = 5.0
COST_FACTOR = 20

URGENT = range(DEFAULT_PRIORITY)
PEEKED_TYPES = 2
"""So many types, in turn, are checked for more urgent jobs than were known: each costs five probes."""

SHARING_PROBES = 8
"""A claim is shared by up to so many probes: each returns rows that lie together, and none has to wait long."""

PROBES_A_PRIORITY = 16
"""So many types of a priority are probed, productive and uncertain ones each, while claims come back cut: some will be
empty."""


@dataclass(frozen=True, slots=True)
class PlannedProbe:
    """One probe of a claim: all priorities of a type from the start, or one behind its cursor."""

    type: str
    priority: int | None
    after: Instant
    after_id: str
    share: int
    room: int


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """What one claim probes, in order. It is whole when nothing that is known was left out."""

    probes: list[PlannedProbe]
    limit: int
    is_whole: bool
    rooms: dict[str, int]

    @property
    def fully_scanned(self) -> set[str]:
        """The types that are scanned from the start."""
        return {each.type for each in self.probes if each.priority is None}

    @property
    def is_full_scan(self) -> bool:
        """Whether every type is scanned from the start."""
        return self.is_whole and all(each.priority is None for each in self.probes)

    def was_cut(self, jobs: Sequence[ClaimedJob]) -> bool:
        """Whether there may be more: the limit was reached, or a job came of which only one is taken at a time."""
        return len(jobs) >= self.limit or any(each.crashes for each in jobs)


@dataclass(slots=True)
class TypeCursors:
    """The cursors of one type. Priorities other than the default are known once a full scan has found them.

    A scan that was cut has seen only the most urgent jobs, of all types together.
    """

    positions: dict[int, tuple[Instant, str]] = field(default_factory=dict)
    priorities: set[int] = field(default_factory=lambda: {DEFAULT_PRIORITY})
    was_cut: bool = False
    scanned_at: float = float("-inf")
    scan_cost: float = 0.0
    needs_full_scan: bool = True


class ClaimCursors:
    """Decides what the next claim probes and where each probe begins.

    Rows of transactions that committed late, and released rows, lie before the cursor; full scans find them. A full
    scan is due on request, otherwise every 20 times its own cost, at least 250 ms and at most 5 s apart.
    """

    def __init__(self) -> None:
        self._types: dict[str, TypeCursors] = {}
        # By priority, the types that returned jobs when last probed, and those that may have some; the one that waited
        # longest is first.
        self._productive: list[dict[str, None]] = [{} for _ in PRIORITIES]
        self._uncertain: list[dict[str, None]] = [{} for _ in PRIORITIES]
        self._peeked: dict[str, None] = {}
        self._hinted: dict[str, None] = {}
        # Whether the last claim left something that is due.
        self.was_cut = False
        self._full_scan_due = float("-inf")

    def plan(
        self, types: Iterable[str], room_of: Callable[[str], int], limit: int, now: float
    ) -> ProbePlan:
        """Return what to probe: everything known, or only as much as a claim needs while claims come back cut."""
        if self.was_cut and now < self._full_scan_due:
            plan = self._plan_some(room_of, limit)
            if plan.probes:
                return plan
        return self._plan_all(types, room_of, limit, now)

    def _plan_all(
        self, types: Iterable[str], room_of: Callable[[str], int], limit: int, now: float
    ) -> ProbePlan:
        rooms = {name: room for name in types if (room := room_of(name)) > 0}
        for name in rooms:
            self._get(name)
        first = [
            name
            for names in (self._uncertain[DEFAULT_PRIORITY], self._productive[DEFAULT_PRIORITY])
            for name in names
            if name in rooms
        ]
        probes: list[PlannedProbe] = []
        for name in dict.fromkeys([*first, *rooms]):
            known, room = self._types[name], rooms[name]
            if known.needs_full_scan or now >= self.full_scan_due(name):
                share = self._share(DEFAULT_PRIORITY, name, limit)
                probes.append(PlannedProbe(name, None, *START, min(share, room), room))
            else:
                probes += [
                    self._probe(name, priority, limit, room) for priority in known.priorities
                ]
        return ProbePlan(probes, limit, True, rooms)

    def _plan_some(self, room_of: Callable[[str], int], limit: int) -> ProbePlan:
        """Probe what was productive, the most urgent first, until there is enough; and peek at some other types."""
        rooms: dict[str, int] = {}

        def with_room(names: Iterable[str]) -> Iterator[str]:
            for name in names:
                if name not in rooms:
                    rooms[name] = room_of(name)
                if rooms[name] > 0:
                    yield name

        peeked = list(with_room(self._peeks()))
        probes: list[PlannedProbe] = []
        for priority in PRIORITIES:
            uncertain = list(islice(with_room(self._uncertain[priority]), PROBES_A_PRIORITY))
            productive = list(islice(with_room(self._productive[priority]), PROBES_A_PRIORITY))
            names = dict.fromkeys(
                [*(peeked if priority in URGENT else ()), *uncertain, *productive]
            )
            probes += [self._probe(name, priority, limit, rooms[name]) for name in names]
            # Less urgent jobs of some types must not come before more urgent ones of others.
            if PROBES_A_PRIORITY in (len(uncertain), len(productive)):
                break
        return ProbePlan(probes, limit, False, {each.type: rooms[each.type] for each in probes})

    def _probe(self, name: str, priority: int, limit: int, room: int) -> PlannedProbe:
        after, after_id = self._types[name].positions.get(priority, START)
        share = min(room, self._share(priority, name, limit))
        return PlannedProbe(name, priority, after, after_id, share, room)

    def _share(self, priority: int, name: str, limit: int) -> int:
        """How much a probe may return before the others of its priority; all it has where nothing is expected."""
        uncertain, productive = self._uncertain[priority], self._productive[priority]
        if name not in uncertain and name not in productive:
            return limit
        return math.ceil(limit / min(SHARING_PROBES, len(uncertain) + len(productive)))

    def _peeks(self) -> list[str]:
        """Types to check for new urgent jobs: nothing else reveals them while claims come back cut."""
        peeked = list(islice(self._hinted, PEEKED_TYPES))
        for name in peeked:
            del self._hinted[name]
        peeked += islice(
            (name for name in self._peeked if name not in peeked), PEEKED_TYPES - len(peeked)
        )
        for name in peeked:
            self._peeked.pop(name, None)
            self._peeked[name] = None
        return peeked

    def _get(self, type: str) -> TypeCursors:
        known = self._types.get(type)
        if known is None:
            known = self._types[type] = TypeCursors()
            self._uncertain[DEFAULT_PRIORITY][type] = None
            self._peeked[type] = None
        return known

    def full_scan_due(self, type: str) -> float:
        """When the type's next full scan is due."""
        known = self._get(type)
        return known.scanned_at + min(
            FULL_SCAN_MAX_S, max(FULL_SCAN_MIN_S, COST_FACTOR * known.scan_cost)
        )

    def allows_full_scan(self, type: str, now: float) -> bool:
        """Whether a full scan now would keep full scans to a small share of the time."""
        known = self._get(type)
        return now >= known.scanned_at + COST_FACTOR * known.scan_cost

    def hint(self, type: str) -> None:
        """Expect new jobs of a type."""
        self._get(type)
        self._hinted[type] = None
        if type not in self._productive[DEFAULT_PRIORITY]:
            self._uncertain[DEFAULT_PRIORITY][type] = None

    def request_full_scan(self, type: str | None = None) -> None:
        """Have a type, or all of them, scanned from the start at the next claim."""
        self._full_scan_due = float("-inf")
        for each in [type] if type is not None else list(self._types):
            self._get(each).needs_full_scan = True

    def needs_full_scan(self, types: Iterable[str]) -> bool:
        """Whether one of these types should be scanned from the start at once."""
        return any(self._get(each).needs_full_scan for each in types)

    def advance(
        self, plan: ProbePlan, jobs: Sequence[ClaimedJob], is_cut: bool, at: float, cost: float
    ) -> None:
        """Move the cursors to the last job each probe found; `jobs` come in claim order.

        A claim that was cut by its limit has left jobs unseen that are as urgent as its last one, or less; of a type
        that filled its own room, more urgent ones too. Down to the default they are expected from now on; less urgent
        ones of some types must not come before those of others, so they wait until a claim comes back short.
        """
        counts = Counter(job.type for job in jobs)
        filled = {
            name for name, room in plan.rooms.items() if room < plan.limit and counts[name] >= room
        }
        lowest = jobs[-1].priority if jobs and is_cut else DEFAULT_PRIORITY
        for name in plan.fully_scanned:
            self._reset_type(name, name in filled, is_cut, lowest)
            known = self._types[name]
            known.scanned_at, known.scan_cost, known.needs_full_scan = at, cost, False
        self._note_unproductive(plan, jobs, is_cut, filled)
        for job in jobs:
            known = self._types[job.type]
            known.priorities.add(job.priority)
            known.positions[job.priority] = (job.available_at, job.id)
            self._uncertain[job.priority].pop(job.type, None)
            productive = self._productive[job.priority]
            productive.pop(job.type, None)
            productive[job.type] = None
        self.was_cut = is_cut
        if plan.is_whole:
            self._note_whole_plan(plan, is_cut)

    def _reset_type(self, name: str, filled: bool, is_cut: bool, lowest: int) -> None:
        known = self._types[name]
        known.positions.clear()
        known.was_cut = is_cut
        last = max(lowest, DEFAULT_PRIORITY) if is_cut else PRIORITIES[-1]
        if filled:
            known.priorities = set(range(last + 1))
        elif is_cut:
            known.priorities = set(range(min(lowest, DEFAULT_PRIORITY), last + 1))
        else:
            known.priorities = {DEFAULT_PRIORITY}
        for priority in PRIORITIES:
            self._productive[priority].pop(name, None)
            self._uncertain[priority].pop(name, None)
            if priority in known.priorities and (filled or is_cut):
                self._uncertain[priority][name] = None

    def _note_unproductive(
        self, plan: ProbePlan, jobs: Sequence[ClaimedJob], is_cut: bool, filled: set[str]
    ) -> None:
        """Expect nothing of probes that were reached and found nothing, and something of those not reached."""
        found = {(job.type, job.priority) for job in jobs}
        probed = sorted(
            ((each.priority, each.type) for each in plan.probes if each.priority is not None),
            key=lambda probe: probe[0],
        )
        reached = len(probed)
        if is_cut:
            indexes = [index for index, probe in enumerate(probed) if probe[::-1] in found]
            reached = indexes[-1] if indexes else 0
        for index, (priority, name) in enumerate(probed):
            if name in filled or (name, priority) in found:
                continue
            if index < reached:
                self._productive[priority].pop(name, None)
                self._uncertain[priority].pop(name, None)
            elif plan.is_whole and name not in self._productive[priority]:
                self._uncertain[priority][name] = None

    def _note_whole_plan(self, plan: ProbePlan, is_cut: bool) -> None:
        if not is_cut:
            for name in plan.rooms:
                known = self._types[name]
                known.needs_full_scan = known.needs_full_scan or known.was_cut
        self._full_scan_due = min(map(self.full_scan_due, plan.rooms), default=float("-inf"))
