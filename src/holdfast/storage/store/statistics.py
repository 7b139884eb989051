"""Statistics over time, and what the database says of itself."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.records import Instant, SeriesPoint, Swept, TypePace, Wait, WaitStep
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store.params import document, records_of


class StatisticsStore:
    """Statistics over time, from the tally and from the newest results; never from a count of all rows."""

    def series(
        self, span_ms: int, step_ms: int, now: Instant | None = None
    ) -> Op[list[SeriesPoint]]:
        """Read what happened in each step of the last span, oldest first; empty steps are left out. One statement."""
        rows = yield Statement(
            "figure_series", {"span_us": span_ms * 1000, "step_us": step_ms * 1000, "now": now}
        )
        return records_of(SeriesPoint, rows)

    def waits(self, steps: Sequence[WaitStep], look: int) -> Op[list[Wait]]:
        """Read how long ended jobs waited from due to started, at most `look` of each step. One statement."""
        rows = yield Statement("figure_waits", {"rows": document(steps), "look": look})
        return records_of(Wait, rows)

    def types(self, span_ms: int, now: Instant | None = None) -> Op[list[TypePace]]:
        """Read what each type ended within the last span, and how many of it run. One statement."""
        rows = yield Statement("figure_types", {"span_us": span_ms * 1000, "now": now})
        return records_of(TypePace, rows)


class ServerStatsStore:
    """What the database says of itself."""

    def document(self) -> Op[str]:
        """Read the dialect's own figures as one JSON object. It only reads."""
        rows = yield Statement("vitals", {})
        text: str = rows[0][0]
        return text

    def sweep(self, few: int) -> Op[Swept | None]:
        """Remove dead rows where there are more than a few; None where there was nothing to do, or no right to do it.

        Runs outside a transaction only.
        """
        before, allowed = (yield Statement("dead_rows", {}))[0]
        if before <= few or not allowed:
            return None
        yield Statement("sweep", {})
        left, _ = (yield Statement("dead_rows", {}))[0]
        return Swept(before, left)
