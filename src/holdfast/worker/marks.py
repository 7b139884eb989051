"""Low-water marks: where each type's last look ended, and when it is time to look from the start again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.core.model import DEFAULT_PRIORITY, PRIORITIES, ClaimedJob, Instant

START: tuple[Instant, str] = (0, "00000000-0000-0000-0000-000000000000")

SOONEST_S = 0.25
LATEST_S = 5.0
COST_FACTOR = 20

URGENT = range(DEFAULT_PRIORITY)
PEEKED = 8
"""So many types are looked at for more urgent jobs than were known, in turn: a line costs as much as ten jobs do."""


@dataclass(frozen=True, slots=True)
class TypeLook:
    """How one type is looked at: from the start or behind its marks, and for how many jobs."""

    is_full: bool
    room: int


@dataclass(slots=True)
class TypeMarks:
    """The marks of one type. Priorities other than the default are known once a full look has found them.

    One that was cut off has seen the most urgent jobs only, of all types together.
    """

    number: int
    marks: dict[int, tuple[Instant, str]] = field(default_factory=dict)
    priorities: set[int] = field(default_factory=lambda: {DEFAULT_PRIORITY})
    was_cut: bool = False
    full_at: float = float("-inf")
    full_cost: float = 0.0
    wants_full: bool = True


class Marks:
    """Decides for each type where the next look begins.

    Rows of transactions that committed late, and released rows, lie before the mark; full looks find them. A full look
    is due on request, otherwise every 20 times its own cost, at least 250 ms and at most 5 s apart.
    """

    def __init__(self) -> None:
        self._types: dict[str, TypeMarks] = {}
        self._looks = 0

    def look(self, type: str, now: float) -> tuple[bool, list[tuple[int, Instant, str]]]:
        """Return whether the look is a full one, and (priority, after, after_id) to probe."""
        known = self._of(type)
        if known.wants_full or now >= self.full_due(type):
            return True, [(priority, *START) for priority in PRIORITIES]
        priorities = known.priorities.union(URGENT) if self._peeks(known) else known.priorities
        return False, [
            (priority, *known.marks.get(priority, START)) for priority in sorted(priorities)
        ]

    def _of(self, type: str) -> TypeMarks:
        known = self._types.get(type)
        if known is None:
            known = self._types[type] = TypeMarks(len(self._types))
        return known

    def _peeks(self, known: TypeMarks) -> bool:
        """Whether it is a type's turn: while looks come back full, nothing else tells of urgent jobs that are new."""
        turns = -(-len(self._types) // PEEKED)
        return known.was_cut and known.number % turns == self._looks % turns

    def full_due(self, type: str) -> float:
        """When the type's next full look is due."""
        known = self._of(type)
        return known.full_at + min(LATEST_S, max(SOONEST_S, COST_FACTOR * known.full_cost))

    def allows_full(self, type: str, now: float) -> bool:
        """Whether a full look now would keep full looks to a small share of the time."""
        known = self._of(type)
        return now >= known.full_at + COST_FACTOR * known.full_cost

    def want_full(self, type: str | None = None) -> None:
        """Ask for a full look at a type, or at all of them."""
        for each in [type] if type is not None else list(self._types):
            self._of(each).wants_full = True

    def wants_full(self, types: Iterable[str]) -> bool:
        """Whether one of these types should be looked at from the start at once."""
        return any(self._of(each).wants_full for each in types)

    def looked(
        self,
        types: Mapping[str, TypeLook],
        jobs: Sequence[ClaimedJob],
        short: bool,
        at: float,
        cost: float,
    ) -> None:
        """Move the marks to the last job found of each type and priority; `jobs` come in claim order.

        A full look that was cut off has left jobs unseen that are as urgent as its last one, or less; of a type that
        filled its own room, more urgent ones too. Down to the default they are probed from now on; less urgent ones of
        some types must not come before those of others, so they wait until a look comes back short.
        """
        self._looks += 1
        counts = Counter(job.type for job in jobs)
        worst = jobs[-1].priority if jobs and not short else DEFAULT_PRIORITY
        last = PRIORITIES[-1] if short else max(worst, DEFAULT_PRIORITY)
        for type, look in types.items():
            known = self._types[type]
            if look.is_full:
                known.full_at, known.full_cost, known.wants_full = at, cost, False
                known.marks.clear()
                known.was_cut = not short
                if counts[type] >= look.room:
                    known.priorities = set(range(last + 1))
                elif short:
                    known.priorities = {DEFAULT_PRIORITY}
                else:
                    known.priorities = set(range(min(worst, DEFAULT_PRIORITY), last + 1))
            elif short and known.was_cut:
                known.wants_full = True
        for job in jobs:
            known = self._types[job.type]
            known.priorities.add(job.priority)
            known.marks[job.priority] = (job.available_at, job.id)
