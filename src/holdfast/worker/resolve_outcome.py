"""Where an error came from, as its readers want it: their own frames, what caused it, what lies within it.

A handler's `Continue` as the successor that is written with the completion.

What becomes of a job after an attempt: the handler's answer or error as the write that records it.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any

import msgspec

from holdfast.client.enqueue import Targets
from holdfast.client.options import check_attempts, check_priority, check_time, id_texts
from holdfast.commands.blockers import check_waits
from holdfast.core.duration import milliseconds
from holdfast.core.error_text import clean_error, fingerprint, words_of
from holdfast.core.errors import Busy, HoldfastError, InvalidOption, UnknownJobType
from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast.core.records import Finish, FinishKind, Instant, NewBlocker, NewJob, Stand, State
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.worker.attempt import Attempt
from holdfast.worker.ipc import ChildError

_OURS = ("holdfast.worker.", "holdfast.scheduler.")


def stack_of(error: BaseException) -> str:
    """Return the frames of an error, from the handler on, and with them its causes or the errors of a group."""
    frames = _theirs(error.__traceback__)
    has_more = error.__cause__ is not None or isinstance(error, BaseExceptionGroup)
    if not has_more and (error.__context__ is None or error.__suppress_context__):
        return "".join(traceback.format_tb(frames))
    return "".join(traceback.format_exception(type(error), error, frames))


def whereabouts(handler: Any, awaited: Any) -> str:
    """Say where a handler is now: in a thread, or in the coroutines that a task waits for; "" when nobody knows."""
    code = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    for frame in list(sys._current_frames().values()):
        if any(each.f_code is code for each in _outwards(frame)):
            return _place(frame)
    frames = [each for each in _inwards(awaited) if not _is_plumbing(each)]
    return _place(frames[-1]) if any(each.f_code is code for each in frames) else ""


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _inwards(awaited: Any) -> Iterator[FrameType]:
    """The frames of a coroutine and of those it waits for, from the outermost on."""
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            yield frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)


def _is_plumbing(frame: FrameType) -> bool:
    module: str = frame.f_globals.get("__name__", "")
    return module.startswith((*_OURS, "asyncio."))


def _place(frame: FrameType) -> str:
    code: CodeType = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"


def _theirs(frames: TracebackType | None) -> TracebackType | None:
    """Leave out how we came to call the handler."""
    first = frames
    while first is not None and first.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        first = first.tb_next
    # An error of our own making has no other frames.
    return first or frames


class Continuation:
    """Turns `Continue` into the write that ends this job and starts the next one of its chain."""

    def __init__(self, worker: str, new_id: Callable[[], str], targets: Targets) -> None:
        self._worker = worker
        self._new_id = new_id
        self._targets = targets

    def finish(self, attempt: Attempt, answer: Continue) -> Finish:
        """Make the fenced write. Raises: UnknownJobType, InvalidName, InputInvalid, InvalidDuration, InvalidOption."""
        claimed = attempt.claimed
        job_id = self._new_id()
        name, text = self._payload(attempt, answer)
        priority = claimed.priority if answer.priority is None else answer.priority
        blockers = [
            NewBlocker(job_id, position, chain_id)
            for position, chain_id in enumerate(self._chains(attempt, answer))
        ]
        successor = NewJob(
            id=job_id,
            chain_id=claimed.chain_id,
            chain_index=claimed.chain_index + 1,
            type=name,
            input=text,
            priority=check_priority(priority),
            at=self._planned(attempt, answer),
            trace=claimed.trace,
            blockers=len(blockers),
            **answer.options,
        )
        check_attempts(successor.max_attempts)
        return finish_of(attempt, self._worker, "continue", next=successor, next_blockers=blockers)

    def check_waits(self, store: Store, finish: Finish) -> Op[None]:
        """Refuse blockers of a successor that its type does not declare to wait for. Raises: UnknownJobType.

        Chains that were started in another transaction still open are not seen yet, and not refused.
        """
        if finish.next is None or not finish.next_blockers:
            return
        successor = self._targets.successor(finish.next.type)
        if successor.waits_for is None:
            return
        ids = sorted({edge.chain_id for edge in finish.next_blockers})
        chains = yield from store.chains.get(ids)
        check_waits(successor.name, successor.waits_for, chains)

    def _payload(self, attempt: Attempt, answer: Continue) -> tuple[str, str]:
        successor = self._targets.successor(answer.type)
        allowed = attempt.type.continues_to
        if allowed is not None and successor.name not in allowed:
            raise UnknownJobType(
                f"{attempt.type.name} does not declare that it continues with {successor.name}"
            )
        return successor.name, self._targets.encode(successor, answer.input)

    @staticmethod
    def _chains(attempt: Attempt, answer: Continue) -> list[str]:
        chains = id_texts(answer.blockers)
        if attempt.claimed.chain_id in chains:
            raise InvalidOption(
                "the chain's next job would wait for its own chain, and neither would end",
                help="leave it out of the blockers; job.input is the way to hand something on",
            )
        return chains

    @staticmethod
    def _planned(attempt: Attempt, answer: Continue) -> Instant | None:
        if answer.after is None:
            return check_time(answer.at, None)
        check_time(answer.at, answer.after)
        return attempt.claimed.claimed_at + milliseconds(answer.after) * 1000


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
