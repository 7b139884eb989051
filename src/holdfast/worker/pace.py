"""How long to wait when there is nothing to do, and after an error."""

from __future__ import annotations

from holdfast.worker.options import WorkerOptions

ERROR_MIN_S = 0.1
ERROR_MAX_S = 5.0


class Pace:
    """Idle waits double from a second to half a minute; while hints are proven alive one poll a minute is enough."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._idle_ms = options.idle_min_ms
        self._error_s = ERROR_MIN_S
        self.hints_alive = False

    def found(self, count: int) -> None:
        """Note a look that reached the database; one that found something ends the idle stretch."""
        self._error_s = ERROR_MIN_S
        if count:
            self._idle_ms = self._options.idle_min_ms

    def poll_s(self, random: float) -> float:
        """How long to sleep without a hint."""
        if self.hints_alive:
            return self._options.poll_ms / 1000
        wait = self._idle_ms + self._options.idle_jitter_ms * random
        self._idle_ms = min(self._idle_ms * 2, self._options.idle_max_ms)
        return wait / 1000

    def error_s(self, random: float) -> float:
        """How long to wait before the database is tried again."""
        wait = self._error_s * (0.5 + random / 2)
        self._error_s = min(self._error_s * 2, ERROR_MAX_S)
        return wait
