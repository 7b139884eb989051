"""Figures over time, over named statements."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.model import Instant
from holdfast.storage.aggregates.wire import document
from holdfast.storage.records import SeriesPoint, TypePace, Wait, WaitStep
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

    def waits(self, steps: Sequence[WaitStep], look: int) -> Op[list[Wait]]:
        rows = yield Statement("figure_waits", {"rows": document(steps), "look": look})
        return [Wait(*row) for row in rows]

    def types(self, span_ms: int, now: Instant | None = None) -> Op[list[TypePace]]:
        rows = yield Statement("figure_types", {"span_us": span_ms * 1000, "now": now})
        return [TypePace(*row) for row in rows]
