"""What a worker has done since its start, as plain numbers that presence and metrics read."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Counters:
    """Monotonic counts of one worker."""

    claimed: int = 0
    processed: int = 0
    retried: int = 0
    dead_letters: int = 0
    cancelled: int = 0
    snoozed: int = 0
    released: int = 0
    recovered: int = 0
    refused: int = 0
    leases_lost: int = 0
    ticks: int = 0
    reaper_runs: int = 0
    heartbeats: int = 0
    stuck: int = 0

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)
