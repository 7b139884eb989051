"""A worker as others see it: the sign of life it writes at each heartbeat, and what is read of it."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.instants import Instant

SIGN_COUNTS_MS = 60_000
"""For how long the sign of life of a worker counts that does not say it: those of older versions."""

VANISHED = "vanished: no heartbeat"
"""The last error of a worker that was marked as stopped because its signs of life ended."""

GIVES_UP_AFTER = "unhandled_after_ms"
"""Among a worker's timings: how long a job whose input it cannot read waits until it becomes a dead letter."""

SHORT_OF_CONNECTIONS = "short_of_connections"
"""Among a worker's timings, while its server has no connection to spare for its handlers' transactions."""


class WorkerRecord(msgspec.Struct, frozen=True):
    """A worker's presence and counters; `back_at` is its first sign of life after its signs had ended for a while.

    `timings` are those it runs with, `leases` those that its types set in code, in milliseconds, `limits` what they
    declare (`core.declared_limits`), `reads` their versions, 1 if not said, or of all as `*`.
    """

    id: str
    name: str
    host: str
    pid: int
    version: str
    slots: int
    types: list[str]
    started_at: Instant
    seen_at: Instant
    stopped_at: Instant | None
    draining: bool
    counters: dict[str, int]
    last_error: str | None
    live_ms: int = SIGN_COUNTS_MS
    back_at: Instant | None = None
    timings: dict[str, int] = {}
    leases: dict[str, int] = {}
    limits: dict[str, Any] = {}
    reads: dict[str, int] = {}

    @property
    def steady_since(self) -> Instant:
        """Since when its signs of life have come without a gap."""
        return max(self.started_at, self.back_at or 0)

    def is_live(self, now: Instant) -> bool:
        """Whether it has not stopped and its last sign of life still counts."""
        return self.stopped_at is None and now - self.seen_at < self.live_ms * 1000

    @property
    def is_short(self) -> bool:
        """Whether its server has no connection to spare for its handlers' transactions."""
        return SHORT_OF_CONNECTIONS in self.timings

    def is_missing(self, now: Instant) -> bool:
        """Whether its signs of life ended without a stop, so that it may be back any moment."""
        return not self.is_live(now) and (self.stopped_at is None or self.last_error == VANISHED)


class WorkerSign(msgspec.Struct, frozen=True):
    """What a worker says of itself at each heartbeat, and for how long that counts.

    `types`, `counters`, `timings`, `leases`, `limits` and `reads` are JSON texts.
    """

    id: str
    name: str
    host: str
    pid: int
    version: str
    slots: int
    types: str
    counters: str
    last_error: str | None
    live_ms: int = SIGN_COUNTS_MS
    timings: str = "{}"
    leases: str = "{}"
    limits: str = "{}"
    reads: str = "{}"


class SignAnswer(msgspec.Struct, frozen=True):
    """What a worker learns at each heartbeat.

    Whether it is to drain, whether jobs may wait in partitions, whether a redrive is under way, and whether signals
    were sent that nobody has routed.
    """

    is_draining: bool
    has_partitions: bool
    has_redrives: bool = False
    has_signals: bool = False


class VanishedWorker(msgspec.Struct, frozen=True):
    """A worker that stopped sending heartbeats without having stopped."""

    id: str
    name: str
    seen_at: Instant
