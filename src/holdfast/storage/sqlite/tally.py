"""Counts that an operation gathers per type and appends once, at its end."""

from __future__ import annotations

import msgspec

from holdfast.core.model import Instant, TerminalState
from holdfast.storage.aggregates.wire import document
from holdfast.storage.statement import Op, Statement


class Count(msgspec.Struct, omit_defaults=True):
    """One row of the tally."""

    type: str
    started: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    reaped: int = 0
    removed: int = 0

    def end(self, state: TerminalState, number: int = 1) -> None:
        """Count jobs that ended in a state; below zero takes back what was counted."""
        match state:
            case "completed":
                self.completed += number
            case "failed":
                self.failed += number
            case "cancelled":
                self.cancelled += number


class Tally:
    """The counts of one operation."""

    def __init__(self) -> None:
        self._counts: dict[str, Count] = {}

    def of(self, type: str) -> Count:
        """The row of a type, to be counted up."""
        count = self._counts.get(type)
        if count is None:
            count = self._counts[type] = Count(type)
        return count

    def write(self, now: Instant | None) -> Op[None]:
        """Append what was counted, if anything was."""
        if self._counts:
            rows = document(list(self._counts.values()))
            yield Statement("tally_add", {"rows": rows, "now": now})
