"""Low-water marks: where each type's last look ended, and when it is time to look from the start again."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.model import DEFAULT_PRIORITY, PRIORITIES, ClaimedJob, Instant

START: tuple[Instant, str] = (0, "00000000-0000-0000-0000-000000000000")

SOONEST_S = 0.25
LATEST_S = 5.0
COST_FACTOR = 20


@dataclass(slots=True)
class TypeMarks:
    """The marks of one type. Priorities other than the default are known once a full look has found them."""

    marks: dict[int, tuple[Instant, str]] = field(default_factory=dict)
    priorities: set[int] = field(default_factory=lambda: {DEFAULT_PRIORITY})
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

    def look(self, type: str, now: float) -> tuple[bool, list[tuple[int, Instant, str]]]:
        """Return whether the look is a full one, and (priority, after, after_id) to probe."""
        known = self._types.setdefault(type, TypeMarks())
        if known.wants_full or now >= self.full_due(type):
            return True, [(priority, *START) for priority in PRIORITIES]
        return False, [
            (priority, *known.marks.get(priority, START)) for priority in sorted(known.priorities)
        ]

    def full_due(self, type: str) -> float:
        """When the type's next full look is due."""
        known = self._types.setdefault(type, TypeMarks())
        return known.full_at + min(LATEST_S, max(SOONEST_S, COST_FACTOR * known.full_cost))

    def allows_full(self, type: str, now: float) -> bool:
        """Whether a full look now would keep full looks to a small share of the time."""
        known = self._types.setdefault(type, TypeMarks())
        return now >= known.full_at + COST_FACTOR * known.full_cost

    def want_full(self, type: str | None = None) -> None:
        """Ask for a full look at a type, or at all of them."""
        for each in [type] if type is not None else list(self._types):
            self._types.setdefault(each, TypeMarks()).wants_full = True

    def looked(
        self, full: dict[str, bool], jobs: list[ClaimedJob], short: bool, at: float, cost: float
    ) -> None:
        """Move the marks to the last job found of each type and priority; `jobs` come in claim order.

        A full look that was cut off may have left urgent jobs unseen, so every priority is probed until one was not.
        """
        for type, was_full in full.items():
            if was_full:
                known = self._types[type]
                known.full_at, known.full_cost, known.wants_full = at, cost, False
                known.marks.clear()
                known.priorities = {DEFAULT_PRIORITY} if short else set(PRIORITIES)
        for job in jobs:
            known = self._types[job.type]
            known.priorities.add(job.priority)
            known.marks[job.priority] = (job.available_at, job.id)
