"""How long the background mode waits between ticks: short after work, doubling when idle, long after a failed tick."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PaceOptions:
    """The pauses of the loop in milliseconds."""

    busy_ms: int = 250
    idle_min_ms: int = 1_000
    idle_max_ms: int = 30_000
    jitter_ms: int = 500
    error_ms: int = 30_000
    error_jitter_ms: int = 2_000


class LoopPace:
    """Remembers for how long nothing was processed. `random` is a number in [0, 1)."""

    def __init__(self, options: PaceOptions) -> None:
        self._options = options
        self._idle_ms = options.idle_min_ms

    def after_tick(self, processed: int, again_in_ms: int | None, random: float) -> float:
        """Return the pause in seconds after a tick; a runner that knows when it is due shortens it."""
        if processed:
            self._idle_ms = self._options.idle_min_ms
            pause_ms = self._options.busy_ms
        else:
            pause_ms = self._idle_ms
            self._idle_ms = min(self._idle_ms * 2, self._options.idle_max_ms)
        wait = pause_ms + self._options.jitter_ms * random
        if again_in_ms is not None:
            wait = min(wait, max(again_in_ms, self._options.busy_ms))
        return wait / 1000

    def after_error(self, random: float) -> float:
        """Return the pause in seconds after a tick that could not run."""
        return (self._options.error_ms + self._options.error_jitter_ms * random) / 1000
