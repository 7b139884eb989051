"""What becomes of a job after an attempt: the handler's answer or error as the write that records it."""

from __future__ import annotations

import traceback
from typing import Any

from holdfast.core.cleaning import clean_error, fingerprint
from holdfast.core.duration import milliseconds
from holdfast.core.errors import Busy, HoldfastError
from holdfast.core.model import Finish, FinishKind
from holdfast.core.outcome import Cancel, Snooze
from holdfast.worker.attempt import Attempt


def finish_of(attempt: Attempt, worker: str, kind: FinishKind, **values: Any) -> Finish:
    """Make the fenced write for an attempt."""
    claimed = attempt.claimed
    return Finish(
        id=claimed.id,
        token=claimed.token,
        kind=kind,
        worker=worker,
        chain_id=claimed.chain_id,
        started_at=attempt.started_instant,
        **values,
    )


def judge_value(attempt: Attempt, worker: str, value: Any) -> Finish:
    """Record a handler's answer: a value completes, Snooze and Cancel do what they say. Raises: OutputInvalid."""
    if value is None:
        return finish_of(attempt, worker, "complete", output="null")
    if isinstance(value, Snooze):
        return finish_of(attempt, worker, "snooze", delay_ms=milliseconds(value.delay))
    if isinstance(value, Cancel):
        error = f"Cancelled: {value.reason}" if value.reason else "Cancelled"
        return finish_of(attempt, worker, "cancel", error=error)
    return finish_of(attempt, worker, "complete", output=attempt.type.output.encode(value))


def judge_error(attempt: Attempt, worker: str, error: BaseException, jitter: float) -> Finish:
    """Record an error: Busy snoozes, a permanent one or the last attempt fails, any other retries after a delay."""
    if isinstance(error, Busy):
        return finish_of(
            attempt, worker, "snooze", delay_ms=error.delay_ms, error=str(error.message)
        )
    text, print_ = describe(error)
    retry = attempt.type.retry
    if getattr(error, "retryable", True) is False or not has_attempts_left(attempt):
        return finish_of(attempt, worker, "fail", error=text, fingerprint=print_)
    delay = retry.delay_ms(attempt.claimed.attempt, jitter)
    return finish_of(attempt, worker, "retry", error=text, fingerprint=print_, delay_ms=delay)


def judge_timeout(attempt: Attempt, worker: str, after_ms: int, jitter: float) -> Finish:
    """Record an attempt that ran out of time, without its handler's cooperation."""
    return judge_error(attempt, worker, TimedOut(after_ms), jitter)


def has_attempts_left(attempt: Attempt) -> bool:
    """Whether another attempt may follow; what was said at the start of the job stands before the type's own limit."""
    limit = attempt.claimed.max_attempts
    if limit is None:
        return attempt.type.retry.allows_another(attempt.claimed.attempt)
    return limit == 0 or attempt.claimed.attempt < limit


class TimedOut(Exception):
    """The attempt ran longer than its type allows."""

    def __init__(self, after_ms: int) -> None:
        super().__init__(f"the attempt was stopped after {after_ms / 1000:g} s")


def describe(error: BaseException) -> tuple[str, str]:
    """The cleaned text of an error, with its stack, and the fingerprint that groups it with its kind."""
    # A handler's error from a process of its own brings its name and stack along.
    kind = getattr(error, "kind", type(error).__name__)
    message = error.message if isinstance(error, HoldfastError) else str(error)
    stack = getattr(error, "stack", None) or "".join(traceback.format_tb(error.__traceback__))
    return clean_error(kind, message, stack), fingerprint(kind, message)
