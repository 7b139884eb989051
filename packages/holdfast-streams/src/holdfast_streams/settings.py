"""How consumers read the event log, and how long it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast.settings.fields import Integer, setting


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Consumers of the event log."""

    PREFIX: ClassVar[str] = "HOLDFAST_STREAMS_"

    keep_hours: int = setting(
        Integer(1, 24 * 366),
        24,
        "Hours that events stay in the log after they were published; always until all readers have passed them.",
    )
    partition_hours: int = setting(
        Integer(1, 24 * 31),
        6,
        "Hours after which the log goes on in a new partition, on PostgreSQL.",
    )
    takeover_ms: int = setting(
        Integer(1_000, 600_000),
        15_000,
        "How long a process that stopped responding keeps its lines.",
    )
    handlers: int = setting(Integer(1, 64), 4, "Consumers' handlers that a process runs at once.")


GROUPS = (StreamSettings,)
