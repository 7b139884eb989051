"""What a handler may answer besides a plain value. Failures are exceptions; these are decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any


@dataclass(frozen=True, slots=True)
class Continue:
    """The chain goes on: complete this job and start the next one in the same transaction."""

    type: Any
    input: Any = None
    after: str | float | timedelta | None = None
    at: datetime | None = None
    priority: int | None = None
    blockers: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snooze:
    """Run this job again later; the attempt is not counted."""

    delay: str | float | timedelta


@dataclass(frozen=True, slots=True)
class Cancel:
    """End this job as cancelled, with the reason."""

    reason: str = ""
