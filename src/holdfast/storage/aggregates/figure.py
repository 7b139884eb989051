"""Figures over time, over named statements."""

from __future__ import annotations

from holdfast.core.model import Instant
from holdfast.storage.records import SeriesPoint
from holdfast.storage.statement import Op, Statement


class Figures:
    """See `storage.figure_port.FigureStore`."""

    def series(
        self, span_ms: int, step_ms: int, now: Instant | None = None
    ) -> Op[list[SeriesPoint]]:
        rows = yield Statement(
            "figure_series", {"span_us": span_ms * 1000, "step_us": step_ms * 1000, "now": now}
        )
        return [SeriesPoint(*row) for row in rows]

    def waits(self, look: int) -> Op[list[int]]:
        rows = yield Statement("figure_waits", {"look": look})
        return [row[0] for row in rows]
