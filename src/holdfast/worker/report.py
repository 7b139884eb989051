"""How a worker ended."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """Why a worker ended and what it left behind; abandoned attempts are left to lease expiry."""

    reason: str
    abandoned: int
    released: int
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 only when nothing was abandoned."""
        return 1 if self.abandoned else 0
