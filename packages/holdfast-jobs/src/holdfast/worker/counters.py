"""What a worker has done: since its start, for presence and metrics, and since its last summary, for the log."""

from __future__ import annotations

from collections.abc import Mapping
from math import frexp, ldexp
from typing import Any

import msgspec

from holdfast.core.records import FinishKind

SHOWN_TYPES = 5
NOTHING_S = 1e-6
MEASURED_ALL = 1_000
MEASURED_EACH = 8


class Counters(msgspec.Struct):
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

    def add(self, counts: Mapping[str, int]) -> None:
        """Add the counts of another worker."""
        for name, count in counts.items():
            setattr(self, name, getattr(self, name) + count)

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return msgspec.structs.asdict(self)


class Spread:
    """How durations are spread, in steps of a quarter of an octave: a quantile is right to an eighth."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps: dict[int, int] = {}

    def add(self, seconds: float) -> None:
        """Note one duration."""
        mantissa, exponent = frexp(seconds or NOTHING_S)
        step = exponent * 4 + int(mantissa * 8)
        self._steps[step] = self._steps.get(step, 0) + 1

    def quantile_ms(self, share: float) -> float | None:
        """Return the duration that this share of all does not exceed, in milliseconds; None without any."""
        left = share * sum(self._steps.values())
        for step in sorted(self._steps):
            left -= self._steps[step]
            if left <= 0:
                exponent, eighths = divmod(step - 4, 4)
                ms = ldexp((eighths + 4.5) / 8, exponent) * 1000
                return float(f"{ms:.2g}")
        return None


class SummaryTally:
    """Counts the attempts that ended since the last summary. On the loop."""

    def __init__(self, now: float) -> None:
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._since = now
        self._kinds: dict[FinishKind, int] = {}
        self._types: dict[str, int] = {}
        self._ended = 0
        self._waits = Spread()
        self._runs = Spread()

    def age(self, now: float) -> float:
        """How long ago the last summary was."""
        return now - self._since

    def add(self, kind: FinishKind, type: str) -> bool:
        """Count an attempt that ended; return whether to measure it too: of many, only some are."""
        self._kinds[kind] = self._kinds.get(kind, 0) + 1
        self._types[type] = self._types.get(type, 0) + 1
        self._ended += 1
        return self._ended < MEASURED_ALL or self._ended % MEASURED_EACH == 0

    def measure(self, wait_s: float, run_s: float) -> None:
        """Note how long an attempt waited and ran."""
        self._waits.add(wait_s)
        self._runs.add(run_s)

    def take(self, now: float) -> Mapping[str, Any] | None:
        """Return the fields of the summary and begin the next; None when nothing has ended."""
        kinds, types, seconds = self._kinds, self._types, now - self._since
        waits, runs = self._waits, self._runs
        self._begin(now)
        if not kinds:
            return None
        ended = sum(kinds.values())
        busiest = sorted(types.items(), key=lambda each: (-each[1], each[0]))[:SHOWN_TYPES]
        return {
            "seconds": round(seconds, 1),
            "completed": kinds.get("complete", 0) + kinds.get("continue", 0),
            "retried": kinds.get("retry", 0),
            "failed": kinds.get("fail", 0),
            "snoozed": kinds.get("snooze", 0),
            "cancelled": kinds.get("cancel", 0),
            "per_second": round(ended / max(seconds, 0.001), 1),
            "wait_p50_ms": waits.quantile_ms(0.5),
            "wait_p95_ms": waits.quantile_ms(0.95),
            "run_p50_ms": runs.quantile_ms(0.5),
            "run_p95_ms": runs.quantile_ms(0.95),
            "types": dict(busiest),
        }
