"""What a store must offer to those who draw how it went; the same rules as in `storage.port`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.model import Instant
from holdfast.storage.records import SeriesPoint, TypePace, Wait, WaitStep
from holdfast.storage.statement import Op


class FigureStore(Protocol):
    """Figures over time, from the tally and from the youngest results; never from a count of all rows."""

    def series(
        self, span_ms: int, step_ms: int, now: Instant | None = None
    ) -> Op[list[SeriesPoint]]:
        """Read what happened in each step of the last span, oldest first; empty steps are left out. One statement."""

    def waits(self, steps: Sequence[WaitStep], look: int) -> Op[list[Wait]]:
        """Read how long ended jobs waited from due to started, at most `look` of each step. One statement."""

    def types(self, span_ms: int, now: Instant | None = None) -> Op[list[TypePace]]:
        """Read what each type ended within the last span, and how many of it run. One statement."""
