"""Low-water marks: which lines a look probes, where each begins, and when it is time to look from the start again.

A line is a type at a priority. What is probed follows what was found, so that a look costs what it takes and not what
there could be: a worker of two hundred types probes a handful of lines while it drains a backlog.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from holdfast.core.records import DEFAULT_PRIORITY, PRIORITIES, ClaimedJob, Instant

START: tuple[Instant, str] = (0, "00000000-0000-0000-0000-000000000000")

SOONEST_S = 0.25
LATEST_S = 5.0
COST_FACTOR = 20

URGENT = range(DEFAULT_PRIORITY)
PEEKED = 2
"""So many types are looked at for more urgent jobs than were known, in turn: each costs five probes."""

SHARES = 8
"""A claim is shared by so many lines, where there are: each gives rows that lie together, and none has to wait long."""

PROBED = 16
"""So many lines of a priority are named, known and unsure ones each, while looks come back full: some will be empty."""


@dataclass(frozen=True, slots=True)
class Line:
    """One probe of a look: all priorities of a type from the start, or one behind its mark."""

    type: str
    priority: int | None
    after: Instant
    after_id: str
    share: int
    room: int


@dataclass(frozen=True, slots=True)
class Lines:
    """What one look probes, in order. It is whole when nothing that is known was left out."""

    probes: list[Line]
    limit: int
    is_whole: bool
    rooms: dict[str, int]

    @property
    def full(self) -> set[str]:
        """The types that are looked at from the start."""
        return {each.type for each in self.probes if each.priority is None}

    @property
    def is_full(self) -> bool:
        """Whether every type is looked at from the start."""
        return self.is_whole and all(each.priority is None for each in self.probes)


@dataclass(slots=True)
class TypeMarks:
    """The marks of one type. Priorities other than the default are known once a full look has found them.

    One that was cut off has seen the most urgent jobs only, of all types together.
    """

    marks: dict[int, tuple[Instant, str]] = field(default_factory=dict)
    priorities: set[int] = field(default_factory=lambda: {DEFAULT_PRIORITY})
    was_cut: bool = False
    full_at: float = float("-inf")
    full_cost: float = 0.0
    wants_full: bool = True


class Marks:
    """Decides which lines the next look probes and where each begins.

    Rows of transactions that committed late, and released rows, lie before the mark; full looks find them. A full look
    is due on request, otherwise every 20 times its own cost, at least 250 ms and at most 5 s apart.
    """

    def __init__(self) -> None:
        self._types: dict[str, TypeMarks] = {}
        # The lines of each priority that gave jobs when last probed, and those that may have some; who waited longest
        # is first.
        self._giving: list[dict[str, None]] = [{} for _ in PRIORITIES]
        self._unsure: list[dict[str, None]] = [{} for _ in PRIORITIES]
        self._peeked: dict[str, None] = {}
        self._hinted: dict[str, None] = {}
        self._was_full = False
        self._full_due = float("-inf")

    def look(
        self, types: Iterable[str], room_of: Callable[[str], int], limit: int, now: float
    ) -> Lines:
        """Return what to probe: everything known, or only as much as a claim needs while looks come back full."""
        if self._was_full and now < self._full_due:
            lines = self._some(room_of, limit)
            if lines.probes:
                return lines
        return self._all(types, room_of, limit, now)

    def _all(
        self, types: Iterable[str], room_of: Callable[[str], int], limit: int, now: float
    ) -> Lines:
        rooms = {name: room for name in types if (room := room_of(name)) > 0}
        for name in rooms:
            self._of(name)
        first = [
            name
            for lines in (self._unsure[DEFAULT_PRIORITY], self._giving[DEFAULT_PRIORITY])
            for name in lines
            if name in rooms
        ]
        probes: list[Line] = []
        for name in dict.fromkeys([*first, *rooms]):
            known, room = self._types[name], rooms[name]
            if known.wants_full or now >= self.full_due(name):
                share = self._share(DEFAULT_PRIORITY, name, limit)
                probes.append(Line(name, None, *START, min(share, room), room))
            else:
                probes += [self._line(name, priority, limit, room) for priority in known.priorities]
        return Lines(probes, limit, True, rooms)

    def _some(self, room_of: Callable[[str], int], limit: int) -> Lines:
        """Probe the lines that gave something, the most urgent first, until there are enough; and some for news."""
        rooms: dict[str, int] = {}

        def have_room(names: Iterable[str]) -> Iterator[str]:
            for name in names:
                if name not in rooms:
                    rooms[name] = room_of(name)
                if rooms[name] > 0:
                    yield name

        peeked = list(have_room(self._peeks()))
        probes: list[Line] = []
        for priority in PRIORITIES:
            unsure = list(islice(have_room(self._unsure[priority]), PROBED))
            giving = list(islice(have_room(self._giving[priority]), PROBED))
            names = dict.fromkeys([*(peeked if priority in URGENT else ()), *unsure, *giving])
            probes += [self._line(name, priority, limit, rooms[name]) for name in names]
            # Less urgent jobs of some types must not come before more urgent ones of others.
            if PROBED in (len(unsure), len(giving)):
                break
        return Lines(probes, limit, False, {each.type: rooms[each.type] for each in probes})

    def _line(self, name: str, priority: int, limit: int, room: int) -> Line:
        after, after_id = self._types[name].marks.get(priority, START)
        share = min(room, self._share(priority, name, limit))
        return Line(name, priority, after, after_id, share, room)

    def _share(self, priority: int, name: str, limit: int) -> int:
        """How much a line gives before the others of its priority are asked; all it has where nothing is expected."""
        unsure, giving = self._unsure[priority], self._giving[priority]
        if name not in unsure and name not in giving:
            return limit
        return math.ceil(limit / min(SHARES, len(unsure) + len(giving)))

    def _peeks(self) -> list[str]:
        """Types to look at for urgent jobs that are new: nothing else tells of them while looks come back full."""
        peeked = list(islice(self._hinted, PEEKED))
        for name in peeked:
            del self._hinted[name]
        peeked += islice(
            (name for name in self._peeked if name not in peeked), PEEKED - len(peeked)
        )
        for name in peeked:
            self._peeked.pop(name, None)
            self._peeked[name] = None
        return peeked

    def _of(self, type: str) -> TypeMarks:
        known = self._types.get(type)
        if known is None:
            known = self._types[type] = TypeMarks()
            self._unsure[DEFAULT_PRIORITY][type] = None
            self._peeked[type] = None
        return known

    def full_due(self, type: str) -> float:
        """When the type's next full look is due."""
        known = self._of(type)
        return known.full_at + min(LATEST_S, max(SOONEST_S, COST_FACTOR * known.full_cost))

    def allows_full(self, type: str, now: float) -> bool:
        """Whether a full look now would keep full looks to a small share of the time."""
        known = self._of(type)
        return now >= known.full_at + COST_FACTOR * known.full_cost

    def hint(self, type: str) -> None:
        """Expect new jobs of a type."""
        self._of(type)
        self._hinted[type] = None
        if type not in self._giving[DEFAULT_PRIORITY]:
            self._unsure[DEFAULT_PRIORITY][type] = None

    def want_full(self, type: str | None = None) -> None:
        """Ask for a full look at a type, or at all of them."""
        self._full_due = float("-inf")
        for each in [type] if type is not None else list(self._types):
            self._of(each).wants_full = True

    def wants_full(self, types: Iterable[str]) -> bool:
        """Whether one of these types should be looked at from the start at once."""
        return any(self._of(each).wants_full for each in types)

    def looked(
        self, lines: Lines, jobs: Sequence[ClaimedJob], is_cut: bool, at: float, cost: float
    ) -> None:
        """Move the marks to the last job found of each line; `jobs` come in claim order.

        A look that was cut off by its limit has left jobs unseen that are as urgent as its last one, or less; of a type
        that filled its own room, more urgent ones too. Down to the default they are expected from now on; less urgent
        ones of some types must not come before those of others, so they wait until a look comes back short.
        """
        counts = Counter(job.type for job in jobs)
        filled = {
            name
            for name, room in lines.rooms.items()
            if room < lines.limit and counts[name] >= room
        }
        worst = jobs[-1].priority if jobs and is_cut else DEFAULT_PRIORITY
        for name in lines.full:
            self._looked_from_the_start(name, name in filled, is_cut, worst)
            known = self._types[name]
            known.full_at, known.full_cost, known.wants_full = at, cost, False
        self._note_what_gave_nothing(lines, jobs, is_cut, filled)
        for job in jobs:
            known = self._types[job.type]
            known.priorities.add(job.priority)
            known.marks[job.priority] = (job.available_at, job.id)
            self._unsure[job.priority].pop(job.type, None)
            giving = self._giving[job.priority]
            giving.pop(job.type, None)
            giving[job.type] = None
        self._was_full = is_cut
        if lines.is_whole:
            self._note_the_whole(lines, is_cut)

    def _looked_from_the_start(self, name: str, filled: bool, is_cut: bool, worst: int) -> None:
        known = self._types[name]
        known.marks.clear()
        known.was_cut = is_cut
        last = max(worst, DEFAULT_PRIORITY) if is_cut else PRIORITIES[-1]
        if filled:
            known.priorities = set(range(last + 1))
        elif is_cut:
            known.priorities = set(range(min(worst, DEFAULT_PRIORITY), last + 1))
        else:
            known.priorities = {DEFAULT_PRIORITY}
        for priority in PRIORITIES:
            self._giving[priority].pop(name, None)
            self._unsure[priority].pop(name, None)
            if priority in known.priorities and (filled or is_cut):
                self._unsure[priority][name] = None

    def _note_what_gave_nothing(
        self, lines: Lines, jobs: Sequence[ClaimedJob], is_cut: bool, filled: set[str]
    ) -> None:
        """Expect nothing of lines that were reached in vain, and something of those that were not reached."""
        gave = {(job.type, job.priority) for job in jobs}
        probed = sorted(
            ((each.priority, each.type) for each in lines.probes if each.priority is not None),
            key=lambda line: line[0],
        )
        reached = len(probed)
        if is_cut:
            places = [place for place, line in enumerate(probed) if line[::-1] in gave]
            reached = places[-1] if places else 0
        for place, (priority, name) in enumerate(probed):
            if name in filled or (name, priority) in gave:
                continue
            if place < reached:
                self._giving[priority].pop(name, None)
                self._unsure[priority].pop(name, None)
            elif lines.is_whole and name not in self._giving[priority]:
                self._unsure[priority][name] = None

    def _note_the_whole(self, lines: Lines, is_cut: bool) -> None:
        if not is_cut:
            for name in lines.rooms:
                known = self._types[name]
                known.wants_full = known.wants_full or known.was_cut
        self._full_due = min(map(self.full_due, lines.rooms), default=float("-inf"))
