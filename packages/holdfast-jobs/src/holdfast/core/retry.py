"""Retry policies: how long a failed attempt waits before the next, and how many there may be."""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast.core.duration import Duration, format_duration, milliseconds
from holdfast.core.errors import ConfigError

SHORTEST_DELAY_MS = 100
MAX_ATTEMPTS = 2**31 - 1
"""What a column of either database holds."""

CRASH_BASE_MS = 1_000
CRASH_CAP_MS = 60_000
"""A worker's first death is rarely its jobs' fault and costs them nothing; after the second they wait a second, then
twice as long each time, a minute at most."""

SUSPECTED_FROM = 2


def suspected_from(poison_limit: int) -> int:
    """After how many deaths of its workers a job runs alone: no later than the last one that it may cost.

    The first is rarely its fault, and running alone keeps a whole process for one job.
    """
    return max(1, min(SUSPECTED_FROM, poison_limit - 1))


@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """Exponential backoff with a cap; `max_attempts` counts executions in total, None means unlimited."""

    base_ms: int
    cap_ms: int
    multiplier: float
    jitter_ms: int
    max_attempts: int | None

    def __init__(
        self,
        *,
        base: Duration = "10s",
        cap: Duration = "300s",
        multiplier: float = 2.0,
        jitter: Duration = "0s",
        max_attempts: int | None = 25,
    ) -> None:
        """Wait `base`, then `multiplier` times longer each attempt up to `cap`, plus `jitter`."""
        object.__setattr__(self, "base_ms", milliseconds(base))
        object.__setattr__(self, "cap_ms", milliseconds(cap))
        object.__setattr__(self, "multiplier", _number(multiplier))
        object.__setattr__(self, "jitter_ms", milliseconds(jitter))
        object.__setattr__(self, "max_attempts", max_attempts)
        self._check()

    def delay_ms(self, attempt: int, jitter01: float = 0.0) -> int:
        """Return the wait after the given failed attempt; `jitter01` is a random number in [0, 1)."""
        delay = _grown(self.base_ms, self.multiplier, attempt, self.cap_ms)
        return max(SHORTEST_DELAY_MS, round(delay + self.jitter_ms * jitter01))

    def _check(self) -> None:
        if not (self.multiplier >= 1 and math.isfinite(self.multiplier)):
            raise ConfigError(
                f"a retry multiplier of {self.multiplier} would not increase the delays"
            )
        if self.cap_ms < self.base_ms:
            base, cap = format_duration(self.base_ms), format_duration(self.cap_ms)
            raise ConfigError(
                f"the retry cap of {cap} is below the base of {base}",
                help=f'set cap="{base}" or more',
            )
        if self.max_attempts is not None and not is_attempt_limit(self.max_attempts):
            raise ConfigError(
                f"max_attempts={repr(self.max_attempts)[:60]} is not a positive whole number",
                help="set 1 for a single attempt, or None for unlimited attempts",
            )


def is_attempt_limit(value: object) -> bool:
    """Say whether a value limits attempts in a way that both databases keep."""
    return type(value) is int and 1 <= value <= MAX_ATTEMPTS


def _number(multiplier: object) -> float:
    if isinstance(multiplier, int | float) and not isinstance(multiplier, bool):
        try:
            return float(multiplier)
        except OverflowError:
            return math.inf
    raise ConfigError(f"a retry multiplier of {repr(multiplier)[:60]} is not a number")


def _grown(base: int, multiplier: float, times: int, cap: int) -> float:
    exponent = max(times, 1) - 1
    if base < 1 or multiplier == 1:
        return base
    # Beyond this exponent the cap rules anyway, and the power itself would overflow.
    if exponent >= math.log(cap / base, multiplier):
        return cap
    return min(cap, base * multiplier**exponent)


JOB_RETRY = Retry()
EVENT_RETRY = Retry(base="5s", cap="120s", jitter="500ms", max_attempts=3)
PUSH_BACKOFF = Retry(base="1m", cap="60m", max_attempts=8)
"""Push messages: eight attempts, 1, 2, 4, 8, 16, 32 and 60 minutes apart, without jitter."""
