"""One attempt as the worker holds it: the claimed job, its type, its abort signal and its times."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Literal, NamedTuple, assert_never

import msgspec

from holdfast.core.records import ClaimedJob, Instant, Stand
from holdfast.core.registry import JobType
from holdfast.core.retry import Retry

AbortReason = Literal[
    "taken_by_another_worker",
    "already_completed",
    "not_found",
    "error",
    "cancelled",
    "timeout",
    "shutdown",
]

Writer = Literal["slot", "heartbeat"]

LOST: frozenset[AbortReason] = frozenset(
    {"taken_by_another_worker", "already_completed", "not_found", "cancelled"}
)
"""Reasons after which nothing this attempt writes can be accepted."""

_lock = threading.Lock()


class EffectivePolicy(NamedTuple):
    """The policy an attempt was claimed under: from the code, or set at run time."""

    lease_ms: int
    timeout_ms: int
    retry: Retry
    max_attempts: int | None


class Attempt(msgspec.Struct, eq=False):
    """A claimed job from its claim to its recorded end, shared by the loop and the heartbeat thread."""

    claimed: ClaimedJob
    type: JobType
    policy: EffectivePolicy
    received_at: float
    progress: tuple[float, str] | None = None
    started_at: float | None = None
    ended_at: float | None = None
    timeout_at: float | None = None
    abort_reason: AbortReason | None = None
    aborted_at: float | None = None
    ended_by: Writer | None = None
    task: asyncio.Task[None] | None = None
    on_interrupt: Callable[[], None] | None = None
    _flag: threading.Event | None = None

    @property
    def started_instant(self) -> Instant | None:
        """When the handler was called, by the database's clock."""
        if self.started_at is None:
            return None
        return self.claimed.claimed_at + int((self.started_at - self.received_at) * 1_000_000)

    @property
    def flag(self) -> threading.Event:
        """A signal for threads that is set when the attempt must stop; made on first use."""
        if self._flag is None:
            self._flag = threading.Event()
            if self.abort_reason is not None:
                self._flag.set()
        return self._flag

    @property
    def is_started(self) -> bool:
        """Whether its handler was called."""
        return self.started_at is not None

    @property
    def is_ending(self) -> bool:
        """Whether its outcome is being written."""
        return self.ended_by is not None

    def take_ending(self, writer: Writer) -> bool:
        """Claim the right to write how this attempt ended; False when another writer has it. From any thread."""
        with _lock:
            if self.ended_by is None:
                self.ended_by = writer
            return self.ended_by == writer

    def abort(self, reason: AbortReason, at: float) -> bool:
        """Raise the abort signal; the first reason counts. From any thread, so that a blocked loop hides nothing."""
        with _lock:
            if self.abort_reason is not None:
                return False
            self.aborted_at = at
            self.abort_reason = reason
        if self._flag is not None:
            self._flag.set()
        return True

    def interrupt(self) -> None:
        """Interrupt the handler, after `abort`. On the loop."""
        if self.on_interrupt is not None:
            self.on_interrupt()
        if self.task is not None:
            self.task.cancel()


def lost_reason(stand: Stand) -> AbortReason | None:
    """Why a job is no longer held by us; None when it is, or when we ended it ourselves."""
    match stand.standing:
        case "held" | "done":
            return None
        case "ended":
            return "cancelled" if stand.state == "cancelled" else "already_completed"
        case "taken" | "free":
            return "taken_by_another_worker"
        case "gone":
            return "not_found"
        case _:
            assert_never(stand.standing)
