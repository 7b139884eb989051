"""How schedules are looked at, and how long what they did is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast.settings.fields import Integer, setting

MAX_POLL_MS = 60_000


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """Schedules that are set at run time."""

    PREFIX: ClassVar[str] = "HOLDFAST_SCHEDULES_"

    poll_ms: int = setting(
        Integer(100, MAX_POLL_MS),
        5_000,
        "Longest time between two looks at the schedules; a due time and a hint come sooner.",
    )
    batch: int = setting(
        Integer(1, 5_000), 1_000, "Schedules whose jobs are started in one transaction."
    )
    keep_days: int = setting(
        Integer(1, 3_660), 7, "Days that the decided due times of schedules are kept."
    )


GROUPS = (ScheduleSettings,)
