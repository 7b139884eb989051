"""One attempt as the worker holds it: the claimed job, its type, its abort signal and its times."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Literal

from holdfast.core.jobtype import JobType
from holdfast.core.model import ClaimedJob, Instant

AbortReason = Literal[
    "taken_by_another_worker",
    "already_completed",
    "not_found",
    "error",
    "cancelled",
    "timeout",
    "shutdown",
]

LOST: frozenset[AbortReason] = frozenset(
    {"taken_by_another_worker", "already_completed", "not_found", "cancelled"}
)
"""Reasons after which nothing this attempt writes can be accepted."""


class Attempt:
    """A claimed job from its claim to its recorded end. Read by the heartbeat thread, changed on the loop."""

    __slots__ = (
        "_flag",
        "_on_abort",
        "abort_reason",
        "aborted_at",
        "claimed",
        "progress",
        "received_at",
        "settled",
        "started_at",
        "task",
        "timeout_at",
        "type",
    )

    def __init__(self, claimed: ClaimedJob, type: JobType, received_at: float) -> None:
        self.claimed = claimed
        self.type = type
        self.received_at = received_at
        self.progress: tuple[float, str] | None = None
        self.started_at: float | None = None
        self.timeout_at: float | None = None
        self.abort_reason: AbortReason | None = None
        self.aborted_at: float | None = None
        self.settled = False
        self.task: asyncio.Task[None] | None = None
        self._flag: threading.Event | None = None
        self._on_abort: list[Callable[[], None]] = []

    @property
    def started_instant(self) -> Instant | None:
        """When the handler was called, by the database's clock."""
        if self.started_at is None:
            return None
        return self.claimed.claimed_at + int((self.started_at - self.received_at) * 1_000_000)

    @property
    def flag(self) -> threading.Event:
        """A thread-safe signal that is set when the attempt must stop; made on first use."""
        if self._flag is None:
            self._flag = threading.Event()
            if self.abort_reason is not None:
                self._flag.set()
        return self._flag

    def on_abort(self, call: Callable[[], None]) -> None:
        """Have something stopped together with the attempt."""
        self._on_abort.append(call)

    def abort(self, reason: AbortReason, at: float) -> None:
        """Tell the handler to stop; the first reason stands. Called on the loop."""
        if self.abort_reason is not None:
            return
        self.abort_reason = reason
        self.aborted_at = at
        if self._flag is not None:
            self._flag.set()
        for call in self._on_abort:
            call()
        if self.task is not None:
            self.task.cancel()
