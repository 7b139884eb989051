"""Leases: how long a claim may run, how often it is renewed, and which timings go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from holdfast.core.duration import Duration, format_duration, milliseconds
from holdfast.core.errors import ConfigError, HeartbeatTooSlow, ReaperTooSlow, ShutdownTooLong

MAX_HEARTBEAT_MS = 15_000
MAX_SHUTDOWN_MS = 30_000
MAX_REAPER_INTERVAL_MS = 10_000
SHORTEST_LEASE_MS = 100
MAX_LEASE_MS = 24 * 86_400_000
"""What a column of PostgreSQL holds, rounded down; a dead worker's jobs wait for so long."""

TIMEOUT_IN_LEASES = 3
SHORTEST_SIGN_MS = 5_000
"""A busy machine delays a heartbeat by seconds; nobody needs to know sooner that a worker is gone."""


@dataclass(frozen=True, slots=True, init=False)
class Lease:
    """How long one claim holds its jobs and how often that is extended.

    A worker renews all its leases together, so it beats as often as the most demanding of its types asks.
    """

    duration_ms: int
    heartbeat_ms: int

    def __init__(self, duration: Duration = "60s", heartbeat: Duration | None = None) -> None:
        """Take the duration and, unless it follows from that, the heartbeat."""
        duration_ms = milliseconds(duration)
        if duration_ms < SHORTEST_LEASE_MS:
            raise ConfigError(
                f"a lease of {format_duration(duration_ms)} is too short to be renewed",
                help=f"set at least {SHORTEST_LEASE_MS}ms; 30s to 120s are usual",
            )
        if duration_ms > MAX_LEASE_MS:
            raise ConfigError(
                f"a lease of {format_duration(duration_ms)} is too long",
                help=f"set at most {format_duration(MAX_LEASE_MS)}; it is renewed for as long as a handler runs",
            )
        heartbeat_ms = default_heartbeat_ms(duration_ms)
        if heartbeat is not None:
            heartbeat_ms = milliseconds(heartbeat)
            if heartbeat_ms == 0:
                raise ConfigError("the heartbeat cannot be 0s", help="leave it unset")
            _check_heartbeat(Timing("heartbeat", heartbeat_ms), Timing("lease", duration_ms))
        object.__setattr__(self, "duration_ms", duration_ms)
        object.__setattr__(self, "heartbeat_ms", heartbeat_ms)

    @property
    def is_beaten(self) -> bool:
        """Whether its heartbeat was given, and does not just follow from its duration."""
        return self.heartbeat_ms != default_heartbeat_ms(self.duration_ms)

    @property
    def timeout_ms(self) -> int:
        """How long an attempt may run when its type sets no timeout."""
        return TIMEOUT_IN_LEASES * self.duration_ms


class Timing(msgspec.Struct, frozen=True):
    """One of the times that must fit together: a setting's name, its value and its origin."""

    name: str
    ms: int
    origin: str = "argument"

    def __str__(self) -> str:
        """Return it as `holdfast config show` does."""
        return f"{self.name}={self.ms} ({self.origin})"


def default_heartbeat_ms(lease_ms: int) -> int:
    """Return the heartbeat of a lease when nobody set one."""
    return min(MAX_HEARTBEAT_MS, lease_ms * 3 // 10)


def live_ms(heartbeat_ms: int) -> int:
    """Return for how long a worker's sign of life counts: three heartbeats, of which two may be lost."""
    return max(SHORTEST_SIGN_MS, 3 * heartbeat_ms)


def default_shutdown_ms(lease_ms: int) -> int:
    """Return the shutdown timeout of a lease when nobody set one."""
    return min(MAX_SHUTDOWN_MS, lease_ms)


def default_reaper_interval_ms(lease_ms: int) -> int:
    """Return the reaper's interval for a lease when nobody set one."""
    return min(MAX_REAPER_INTERVAL_MS, lease_ms // 2)


def local_deadline_ms(started_ms: int, lease_ms: int) -> int:
    """Return when, by the local clock, an unrenewed attempt has to stop before its lease ends.

    The margin is a tenth of the lease but at least a second, or a fifth of leases below 5 s.
    """
    margin = max(lease_ms // 10, min(1_000, lease_ms // 5))
    return started_ms + lease_ms - margin


def check_timing(
    leases: Sequence[Timing], heartbeat: Timing, shutdown: Timing, reaper_interval: Timing
) -> None:
    """Refuse times that do not fit the smallest lease, with their origins and values that would."""
    lease = min(leases, key=lambda each: each.ms)
    _check_heartbeat(heartbeat, lease)
    if shutdown.ms > lease.ms:
        raise ShutdownTooLong(
            "the shutdown timeout is longer than the lease",
            details=[f"{shutdown}   {lease}"],
            rule="shutdown timeout <= lease, so that leases last while handlers finish",
            help=f"set {shutdown.name}={default_shutdown_ms(lease.ms)}, or a lease of {shutdown.ms}",
        )
    if reaper_interval.ms >= lease.ms:
        raise ReaperTooSlow(
            "the reaper interval is too long for the lease",
            details=[f"{reaper_interval}   {lease}"],
            rule="reaper interval < lease, so that a dead worker's jobs are recovered within two leases",
            help=f"set {reaper_interval.name}={default_reaper_interval_ms(lease.ms)}, "
            f"or a lease of {reaper_interval.ms * 2}",
        )


def _check_heartbeat(heartbeat: Timing, lease: Timing) -> None:
    if heartbeat.ms * 3 < lease.ms:
        return
    raise HeartbeatTooSlow(
        "heartbeat is too slow for the lease",
        details=[f"{heartbeat}   {lease}"],
        rule="heartbeat < lease / 3, so that two lost heartbeats do not cost the lease",
        help=f"set {heartbeat.name}={default_heartbeat_ms(lease.ms)}, "
        f"or a lease of {heartbeat.ms * 15 // 4}",
    )


DEFAULT = Lease("60s")
