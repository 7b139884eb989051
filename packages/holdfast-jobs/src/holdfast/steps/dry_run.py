"""Replays parked functions against the code at hand, to see before a deploy whether it fits what they recorded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container
from contextlib import suppress
from typing import Any

from holdfast.client.start_targets import Targets
from holdfast.commands.unreadable import ParkedFunction
from holdfast.core.errors import SealError
from holdfast.core.lease import Lease
from holdfast.core.records import ClaimedJob
from holdfast.core.registry import JobType
from holdfast.core.retry import Retry
from holdfast.steps.function import DurableFunction
from holdfast.steps.functions import FunctionTypes
from holdfast.steps.parking import Parked
from holdfast.worker.attempt import Attempt, EffectivePolicy
from holdfast.worker.job import Job

PATIENCE_S = 10.0
"""How long the code before the first thing that is not recorded may take."""


class DryFunctions(FunctionTypes):
    """What a function may ask for that does nothing."""

    def now(self, attempt: Attempt) -> int:
        """The time by this machine's clock."""
        return time.time_ns() // 1000

    def random(self) -> float:
        """No chance."""
        return 0.0

    def monotonic(self) -> float:
        """No time passes."""
        return 0.0


async def replay_dry(
    targets: Targets, type: JobType, parked: ParkedFunction, known: Container[str] = ()
) -> tuple[str | None, list[str]]:
    """Run a handler up to the first thing that is not recorded; return why the code does not fit, None if it does.

    And what is recorded that it did not ask for until then; slow branches get time for it, unless all of that is
    `known`. Code between the steps runs as it would in a worker; what it raises is not what this is about.
    """
    attempt = _attempt_of(type, parked)
    try:
        attempt.open_seal()
    except SealError as error:
        return error.message, []
    function = DurableFunction(DryFunctions(targets), attempt, parked.records, parked.children)  # type: ignore[arg-type]
    function.driver.is_dry, history = True, function.history
    function.parking.is_behind = lambda: any(str(each) not in known for each in history.unasked)
    job: Job[Any] = Job(attempt, "types check", None)
    job.function = function
    assert type.handler is not None
    has_ended = False
    with suppress(Exception, asyncio.CancelledError):
        if function.is_async:
            await asyncio.wait_for(function.parking.drive(type.handler(job)), PATIENCE_S)
        else:
            await asyncio.to_thread(_call, type.handler, job)
        has_ended = True
    if history.stopped is not None:
        return history.stopped.message, []
    # After an error of the code, the rest was not come to; and one that goes back asks for what is undone.
    unasked = history.unasked.values() if has_ended or function.parking.has_begun else ()
    return None, [str(each.id) for each in unasked if each.undo or not history.is_failed]


def _call(handler: Any, job: Job[Any]) -> None:
    with suppress(Parked):
        handler(job)


def _attempt_of(type: JobType, parked: ParkedFunction) -> Attempt:
    job = parked.job
    known = {
        each: getattr(job, each) for each in ClaimedJob.__struct_fields__ if hasattr(job, each)
    }
    known |= {"attempt": max(1, job.attempt), "available_at": job.created_at, "expires_at": None}
    claimed = ClaimedJob(**known, token="", blockers=0, claimed_at=job.created_at, steps=True)
    lease_ms = (type.lease or Lease("60s")).duration_ms
    return Attempt(
        claimed, type, EffectivePolicy(lease_ms, lease_ms, type.retry or Retry(), None), 0.0
    )
