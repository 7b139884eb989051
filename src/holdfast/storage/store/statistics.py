"""Figures over time, over named statements.

What the database says of itself, over named statements.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.records import Instant, SeriesPoint, Swept, TypePace, Wait, WaitStep
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store.params import document


class Figures:
    """See `storage.figure_port.FigureStore`."""

    def series(
        self, span_ms: int, step_ms: int, now: Instant | None = None
    ) -> Op[list[SeriesPoint]]:
        rows = yield Statement(
            "figure_series", {"span_us": span_ms * 1000, "step_us": step_ms * 1000, "now": now}
        )
        return [SeriesPoint(*row) for row in rows]

    def waits(self, steps: Sequence[WaitStep], look: int) -> Op[list[Wait]]:
        rows = yield Statement("figure_waits", {"rows": document(steps), "look": look})
        return [Wait(*row) for row in rows]

    def types(self, span_ms: int, now: Instant | None = None) -> Op[list[TypePace]]:
        rows = yield Statement("figure_types", {"span_us": span_ms * 1000, "now": now})
        return [TypePace(*row) for row in rows]


class Vitals:
    """See `storage.schedule_port.VitalsStore`."""

    def document(self) -> Op[str]:
        rows = yield Statement("vitals", {})
        text: str = rows[0][0]
        return text

    def sweep(self, few: int) -> Op[Swept | None]:
        before, allowed = (yield Statement("dead_rows", {}))[0]
        if before <= few or not allowed:
            return None
        yield Statement("sweep", {})
        left, _ = (yield Statement("dead_rows", {}))[0]
        return Swept(before, left)
