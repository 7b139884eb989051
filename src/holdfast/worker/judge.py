"""What becomes of a job after an attempt: the handler's answer or error as the write that records it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.core.cleaning import clean_error, fingerprint, words_of
from holdfast.core.errors import Busy, HoldfastError
from holdfast.core.model import Finish, FinishKind, Stand, State
from holdfast.core.outcome import Cancel, Snooze
from holdfast.worker.attempt import Attempt
from holdfast.worker.frames import ChildError
from holdfast.worker.stack import stack_of

_KIND_OF: dict[State, FinishKind] = {
    "completed": "complete",
    "failed": "fail",
    "cancelled": "cancel",
}
_GIVES_BACK: frozenset[FinishKind] = frozenset({"retry", "snooze", "release"})


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


def completed(attempt: Attempt, worker: str, output: str) -> Finish:
    """Make the fenced write of a completion; most writes are one, so it takes the straightest way."""
    claimed = attempt.claimed
    return Finish(
        claimed.id,
        claimed.token,
        "complete",
        worker,
        claimed.chain_id,
        attempt.started_instant,
        output,
    )


def judge_value(
    attempt: Attempt, worker: str, value: Any, encode: Callable[[Any], str] | None = None
) -> Finish:
    """Record a handler's answer: a value completes, Cancel cancels. Raises: OutputInvalid."""
    if value is None:
        return completed(attempt, worker, "null")
    if isinstance(value, Cancel):
        return finish_of(attempt, worker, "cancel", error=clean_error("Cancelled", value.reason))
    return completed(attempt, worker, (encode or attempt.type.output.encode)(value))


def snoozed(attempt: Attempt, worker: str, wish: Snooze | Busy, now: float) -> Finish:
    """Record that a handler wants to be called again later; `now` is the worker's monotonic clock."""
    delay_ms = wish.delay_ms
    if wish.at is not None:
        # The database's clock, as far as it has come since the claim.
        passed = int((now - attempt.received_at) * 1_000_000)
        delay_ms = max(0, wish.at - attempt.claimed.claimed_at - passed + 999) // 1000
    error = clean_error("Busy", wish.message) if isinstance(wish, Busy) else None
    return finish_of(attempt, worker, "snooze", delay_ms=delay_ms, error=error)


def judge_error(
    attempt: Attempt, worker: str, error: BaseException, now: float, jitter: float
) -> Finish:
    """Record an error: Busy and Snooze snooze, a permanent one or the last attempt fails, any other is retried."""
    try:
        if isinstance(error, Busy | Snooze):
            return snoozed(attempt, worker, error, now)
        return _judged(attempt, worker, error, jitter)
    except Exception as worse:
        # An error's attributes may be code of the handler's own, and run only when they are asked.
        return _judged(attempt, worker, Unreadable(worse), jitter)


def _judged(attempt: Attempt, worker: str, error: BaseException, jitter: float) -> Finish:
    text, print_ = describe(error)
    if getattr(error, "retryable", True) is False or not has_attempts_left(attempt):
        return finish_of(attempt, worker, "fail", error=text, fingerprint=print_)
    delay = attempt.terms.retry.delay_ms(attempt.claimed.attempt, jitter)
    return finish_of(attempt, worker, "retry", error=text, fingerprint=print_, delay_ms=delay)


def judge_timeout(attempt: Attempt, worker: str, now: float, jitter: float) -> Finish:
    """Record an attempt that ran out of time, without its handler's cooperation."""
    started = attempt.received_at if attempt.started_at is None else attempt.started_at
    own_s = attempt.terms.timeout_ms / 1000
    is_own = attempt.timeout_at is None or attempt.timeout_at >= started + own_s
    error = TimedOut(now - started) if is_own else BudgetSpent(now - started)
    return judge_error(attempt, worker, error, now, jitter)


def has_attempts_left(attempt: Attempt) -> bool:
    """Whether another attempt may follow; what was said at the start of the job stands before the type's own limit."""
    limit = attempt.claimed.max_attempts
    if limit is None:
        limit = attempt.terms.max_attempts
    return not limit or attempt.claimed.attempt < limit


def as_it_stands(finish: Finish, stand: Stand, unsure: bool) -> Finish | None:
    """The write that an earlier try of ours has made already; None when it was not ours.

    Whoever gives a job back leaves no token behind; after an unknown commit that was most likely we.
    """
    if stand.standing == "done" and stand.state is not None:
        kind = _KIND_OF[stand.state]
        if finish.kind == kind or (finish.kind == "continue" and kind == "complete"):
            return finish
        return msgspec.structs.replace(finish, kind=kind)
    if unsure and finish.kind in _GIVES_BACK and stand.standing in ("free", "taken"):
        return finish
    return None


def unwritable(finish: Finish, text: str, fingerprint: str) -> Finish:
    """The failure that stands for an outcome the database does not take."""
    return Finish(
        id=finish.id,
        token=finish.token,
        kind="fail",
        worker=finish.worker,
        chain_id=finish.chain_id,
        started_at=finish.started_at,
        error=text,
        fingerprint=fingerprint,
    )


class Unreadable(Exception):
    """What the handler raised cannot be asked what it is."""

    def __init__(self, worse: Exception) -> None:
        super().__init__(f"the handler's error raised another: {words_of(worse)}")


class TimedOut(Exception):
    """The attempt ran longer than its type allows."""

    def __init__(self, after_s: float) -> None:
        super().__init__(f"the attempt was stopped after {after_s:.3g} s")


class BudgetSpent(Exception):
    """The attempt ran longer than the tick that began it."""

    def __init__(self, after_s: float) -> None:
        super().__init__(
            f"ended after {after_s:.3g} s by the tick's budget (WORKER_TICK_OVERALL_MAX_MS)"
        )


def describe(error: BaseException) -> tuple[str, str]:
    """The cleaned text of an error, with its stack, and the fingerprint that groups it with its kind."""
    if isinstance(error, ChildError):
        return clean_error(error.kind, str(error), error.stack), fingerprint(error.kind, str(error))
    kind = type(error).__name__
    message = error.message if isinstance(error, HoldfastError) else words_of(error)
    return clean_error(kind, message, stack_of(error)), fingerprint(kind, message)
