"""How long ended chains of a type are kept, by how they ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.core.duration import Duration, milliseconds
from holdfast.core.lifecycle import TerminalState


@dataclass(frozen=True, slots=True, init=False)
class Keep:
    """How long chains that begin with a type are kept after their end; None leaves it to the settings."""

    completed_ms: int | None
    failed_ms: int | None
    cancelled_ms: int | None

    def __init__(
        self,
        *,
        completed: Duration | None = None,
        failed: Duration | None = None,
        cancelled: Duration | None = None,
    ) -> None:
        """Keep for these times; 0 removes what completed as soon as possible."""
        for name, given in (("completed", completed), ("failed", failed), ("cancelled", cancelled)):
            object.__setattr__(self, f"{name}_ms", None if given is None else milliseconds(given))

    def __iter__(self) -> Iterator[tuple[TerminalState, int]]:
        """Go through the ends that it says something about."""
        spans: tuple[tuple[TerminalState, int | None], ...] = (
            ("completed", self.completed_ms),
            ("failed", self.failed_ms),
            ("cancelled", self.cancelled_ms),
        )
        return ((state, span) for state, span in spans if span is not None)


def keep_of(given: Keep | Duration | None) -> Keep | None:
    """Return what `keep=` says: a single time is for what completed or was cancelled; dead letters are named apart."""
    if given is None or isinstance(given, Keep):
        return given
    return Keep(completed=given, cancelled=given)
