"""What becomes of a job after an attempt: the handler's return value or error as the write that records it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

import msgspec

from holdfast.client.start_options import check_attempts, check_priority, check_time, id_texts
from holdfast.client.start_targets import Targets
from holdfast.commands.blockers import check_waits
from holdfast.core.duration import MAX_DURATION_MS, format_duration, milliseconds
from holdfast.core.errors import (
    Busy,
    HoldfastError,
    InputUnreadable,
    InvalidOption,
    SealError,
    UnknownJobType,
    words_of,
)
from holdfast.core.ids import beside
from holdfast.core.instants import Instant
from holdfast.core.lease import TIMEOUT_IN_LEASES
from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast.core.records import (
    ON_FAILED_TRIES,
    FailingJob,
    Finish,
    FinishKind,
    LeaseStatus,
    NewBlocker,
    NewJob,
    State,
)
from holdfast.core.redaction import clean_error, fingerprint
from holdfast.core.sealing import SEALED_TEXT, seal_output
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.worker.attempt import Attempt, EffectivePolicy
from holdfast.worker.clock import Clock
from holdfast.worker.processes import ChildDied, ChildError

_KIND_OF: dict[State, FinishKind] = {
    "completed": "complete",
    "failed": "fail",
    "cancelled": "cancel",
}
_GIVES_BACK: frozenset[FinishKind] = frozenset({"retry", "snooze", "release", "park"})
_OUR_MODULES = ("holdfast.worker.", "holdfast.scheduler.", "holdfast.steps.")


def make_finish(attempt: Attempt, worker: str, kind: FinishKind, **values: Any) -> Finish:
    """Make the fenced write for an attempt."""
    claimed = attempt.claimed
    return Finish(
        id=claimed.id,
        token=claimed.token,
        kind=kind,
        worker=worker,
        chain_id=claimed.chain_id,
        started_at=attempt.started_instant,
        gate=claimed.gate,
        **values,
    )


class OutcomeResolver:
    """Resolves what a worker's handlers return and raise."""

    def __init__(self, worker: str, clock: Clock, targets: Targets) -> None:
        """`targets` knows the types that a chain may continue with."""
        self._worker = worker
        self._clock = clock
        self._targets = targets

    def resolve(
        self, attempt: Attempt, value: Any, encode: Callable[[Any, int], str] | None = None
    ) -> Finish:
        """A value completes, Continue, Snooze and Cancel do what they say.

        Raises: OutputInvalid; of Continue UnknownJobType, InvalidName, InputInvalid, InvalidDuration, InvalidOption.
        """
        if attempt.claimed.failing:
            return self._fail_noted(attempt, value)
        if value is None:
            return self._complete(attempt, "null")
        if isinstance(value, Continue):
            return self._continue(attempt, value)
        if isinstance(value, Snooze):
            return self._snooze(attempt, value)
        if isinstance(value, Cancel):
            error = clean_error("Cancelled", value.reason)
            return make_finish(attempt, self._worker, "cancel", error=error)
        text = (encode or attempt.type.output.encode)(value, self._targets.output_limit)
        if attempt.sealed:
            claimed = attempt.claimed
            text = seal_output(attempt.type.sealer, text, claimed.chain_id, claimed.type)
        return self._complete(attempt, text)

    def resolve_error(self, attempt: Attempt, error: BaseException) -> Finish:
        """Busy and Snooze snooze, a permanent error or the last attempt fails, any other error is retried."""
        try:
            if isinstance(error, Busy | Snooze):
                return self._snooze(attempt, error)
            return self._retry_or_fail(attempt, error)
        except Exception as worse:
            # An error's attributes may be code of the handler's own, and run only when they are read.
            return self._retry_or_fail(attempt, Unreadable(worse))

    def resolve_timeout(self, attempt: Attempt, now: float) -> Finish:
        """Resolve an attempt that timed out, without its handler's cooperation."""
        started = attempt.received_at if attempt.started_at is None else attempt.started_at
        own_s = attempt.policy.timeout_ms / 1000
        is_own = attempt.timeout_at is None or attempt.timeout_at >= started + own_s
        after_s = now - started
        error = TimedOut(after_s, attempt.policy) if is_own else BudgetSpent(after_s)
        return self.resolve_error(attempt, error)

    def postpone(
        self, attempt: Attempt, error: BaseException, delay_ms: int | None = None
    ) -> Finish:
        """Try again later without costing an attempt; the history says why."""
        text, _ = describe_error(error, attempt.sealed)
        if delay_ms is None:
            delay_ms = attempt.policy.retry.delay_ms(1, self._clock.random())
        return make_finish(attempt, self._worker, "snooze", delay_ms=delay_ms, error=text)

    def wait_for_code(
        self, attempt: Attempt, error: InputUnreadable | SealError, delay_ms: int | None
    ) -> Finish:
        """Let a job wait whose input cannot be read, without costing an attempt; without a delay it fails."""
        kind = type(error).__name__
        text = clean_error(kind, error.message)
        if delay_ms is None:
            print_ = fingerprint(kind, error.message)
            return self._fail(attempt, text, print_)
        return make_finish(attempt, self._worker, "snooze", delay_ms=delay_ms, error=text)

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

    def _complete(self, attempt: Attempt, output: str) -> Finish:
        """Most writes are this one, so it takes the shortest way."""
        claimed = attempt.claimed
        finish = Finish(
            claimed.id,
            claimed.token,
            "complete",
            self._worker,
            claimed.chain_id,
            attempt.started_instant,
            output,
        )
        if claimed.gate is not None:
            finish.gate = claimed.gate
        if attempt.type.keep is not None and attempt.type.keep.completed_ms == 0:
            finish.drop = not (
                claimed.chain_index
                or claimed.blockers
                or claimed.key
                or claimed.gate
                or claimed.steps
            )
        return finish

    def _snooze(self, attempt: Attempt, request: Snooze | Busy) -> Finish:
        delay_ms = request.delay_ms
        if request.at is not None:
            delay_ms = max(0, request.at - self._now(attempt) + 999) // 1000
        if not isinstance(request, Busy):
            return make_finish(attempt, self._worker, "snooze", delay_ms=delay_ms)
        values = {"delay_ms": delay_ms, "rest": request.key}
        error = clean_error("Busy", SEALED_TEXT if attempt.sealed else request.message)
        return make_finish(attempt, self._worker, "snooze", error=error, **values)

    def _retry_or_fail(self, attempt: Attempt, error: BaseException) -> Finish:
        text, print_ = describe_error(error, attempt.sealed)
        if attempt.claimed.failing:
            return self._retry_on_failed(attempt, text)
        values: dict[str, Any] = {"error": text, "fingerprint": print_}
        if getattr(error, "retryable", True) is False or not has_attempts_left(attempt):
            return self._fail(attempt, text, print_)
        delay_ms = getattr(error, "retry_after_ms", None)
        if type(delay_ms) is not int or not 0 <= delay_ms <= MAX_DURATION_MS:
            policy = attempt.policy.retry
            delay_ms = policy.delay_ms(attempt.claimed.attempt, self._clock.random())
        return make_finish(attempt, self._worker, "retry", delay_ms=delay_ms, **values)

    def _fail(self, attempt: Attempt, error: str | None, print_: str | None) -> Finish:
        """Fail a job for good, or leave that to the call of its type's `on_failed`, before which steps are undone."""
        due = "due" if attempt.type.on_failed is not None or attempt.has_undos else None
        values = {"error": error, "fingerprint": print_, "on_failed": due}
        return make_finish(attempt, self._worker, "fail", **values)

    def resolve_undone(self, attempt: Attempt, error: str, problem: str | None) -> Finish:
        """Fail a durable function after its steps were undone, or have the undoing tried again, if one was not."""
        print_ = fingerprint(error.partition(":")[0], error.partition("\n")[0])
        attempt.has_undos = False
        if problem is None:
            return self._fail(attempt, error, print_)
        if not has_attempts_left(attempt):
            return self._fail(attempt, f"{error}\n\n{problem}", print_)
        delay_ms = attempt.policy.retry.delay_ms(attempt.claimed.attempt, self._clock.random())
        values = {"error": problem, "fingerprint": print_}
        return make_finish(attempt, self._worker, "retry", delay_ms=delay_ms, **values)

    def _fail_noted(self, attempt: Attempt, value: Any) -> Finish:
        """Record the failure after which `on_failed` was called, whatever that returned."""
        if isinstance(value, Snooze):
            return self._snooze(attempt, value)
        why = attempt.failing or FailingJob(0, None, None)
        values = {"error": why.error, "fingerprint": why.fingerprint, "on_failed": "called"}
        return make_finish(attempt, self._worker, "fail", **values)

    def _retry_on_failed(self, attempt: Attempt, text: str) -> Finish:
        """Call `on_failed` again later; after the last time the job fails without it."""
        why = attempt.failing
        tries = 1 if why is None else attempt.claimed.attempt - why.attempt
        if why is not None and tries >= ON_FAILED_TRIES:
            error = f"{why.error}\n\non_failed was called {tries} times in vain: {text}"
            return self._fail(attempt, error, why.fingerprint)
        delay_ms = attempt.policy.retry.delay_ms(max(1, tries), self._clock.random())
        return make_finish(
            attempt, self._worker, "retry", delay_ms=delay_ms, error=f"on_failed: {text}"
        )

    def _continue(self, attempt: Attempt, answer: Continue) -> Finish:
        """End this job and start the next one of its chain."""
        claimed = attempt.claimed
        job_id = answer.options.get("id") or beside(new_id(), claimed.chain_id)
        successor = self._targets.successor(answer.type)
        allowed = attempt.type.continues_to
        if allowed is not None and successor.name not in allowed:
            raise UnknownJobType(
                f"{attempt.type.name} does not declare that it continues with {successor.name}"
            )
        text = self._targets.encode(successor, answer.input)
        priority = claimed.priority if answer.priority is None else answer.priority
        blockers = [
            NewBlocker(job_id, position, chain_id)
            for position, chain_id in enumerate(_blocking_chains(attempt, answer))
        ]
        gate, ordered, cost = successor.place(text)
        job = NewJob(
            chain_id=claimed.chain_id,
            chain_index=claimed.chain_index + 1,
            type=successor.name,
            input=successor.stored_input(job_id, text),
            priority=check_priority(priority)
            if answer.priority is None
            else successor.check_priority(priority),
            at=self._planned_at(attempt, answer),
            trace=claimed.trace,
            context=claimed.context,
            blockers=len(blockers),
            version=successor.version,
            gate=gate,
            ordered=ordered,
            cost=cost,
            **{**answer.options, "id": job_id},
        )
        check_attempts(job.max_attempts)
        return make_finish(attempt, self._worker, "continue", next=job, next_blockers=blockers)

    def _planned_at(self, attempt: Attempt, answer: Continue) -> Instant | None:
        at = check_time(answer.at, answer.after)
        return (
            at if answer.after is None else self._now(attempt) + milliseconds(answer.after) * 1000
        )

    def _now(self, attempt: Attempt) -> Instant:
        """The database's clock, as far as it has come since the claim."""
        passed = self._clock.monotonic() - attempt.received_at
        return attempt.claimed.claimed_at + int(passed * 1_000_000)


def _blocking_chains(attempt: Attempt, answer: Continue) -> list[str]:
    chains = id_texts(answer.blockers)
    if attempt.claimed.chain_id in chains:
        raise InvalidOption(
            "the chain's next job would wait for its own chain, and neither would end",
            help="remove it from the blockers; use job.input to pass data on",
        )
    return chains


def has_attempts_left(attempt: Attempt) -> bool:
    """Whether another attempt may follow; the job's own limit takes precedence over its type's."""
    limit = attempt.claimed.max_attempts
    if limit is None:
        limit = attempt.policy.max_attempts
    return not limit or attempt.claimed.attempt < limit


def match_earlier_write(finish: Finish, status: LeaseStatus, unsure: bool) -> Finish | None:
    """The write that an earlier try of ours has made already; None when it was not ours.

    Giving a job back leaves no token behind; after an unknown commit it was most likely ours.
    """
    if status.lease == "done" and status.state is not None:
        kind = _KIND_OF[status.state]
        if finish.kind == kind or (finish.kind == "continue" and kind == "complete"):
            return finish
        return msgspec.structs.replace(finish, kind=kind)
    if finish.drop and unsure and status.lease == "gone":
        return finish
    if not unsure or status.lease not in ("free", "taken"):
        return None
    if finish.on_failed == "due":
        return msgspec.structs.replace(finish, kind="retry")
    if finish.kind in _GIVES_BACK:
        return finish
    return None


class Unreadable(Exception):
    """The attributes of the handler's error cannot be read."""

    def __init__(self, worse: Exception) -> None:
        super().__init__(f"the handler's error raised another: {words_of(worse)}")


class TimedOut(Exception):
    """The attempt ran longer than its type allows."""

    def __init__(self, after_s: float, policy: EffectivePolicy) -> None:
        is_default = policy.timeout_ms == TIMEOUT_IN_LEASES * policy.lease_ms
        super().__init__(
            f"the attempt was stopped after {after_s:.3g} s: its timeout is"
            f" {format_duration(policy.timeout_ms)}{', the default of three leases' if is_default else ''};"
            " to allow more, set timeout= on the job type"
        )


class BudgetSpent(Exception):
    """The attempt ran longer than the tick that began it."""

    def __init__(self, after_s: float) -> None:
        super().__init__(
            f"the attempt was stopped after {after_s:.3g} s: it exceeded the tick's time budget"
            " (WORKER_TICK_OVERALL_MAX_MS)"
        )


_OWN_WORDS = (TimedOut, BudgetSpent, ChildDied, SealError)
"""Errors whose text is ours, and so never repeats a payload."""


def describe_error(error: BaseException, sealed: bool = False) -> tuple[str, str]:
    """The cleaned text of an error, with its stack, and the fingerprint that groups it with its kind.

    If `sealed`, it says what was raised and where, and not what the error says: that may repeat the payload.
    """
    if sealed and not isinstance(error, _OWN_WORDS):
        kind = error.kind if isinstance(error, ChildError) else type(error).__name__
        stack = error.stack if isinstance(error, ChildError) else format_places(error)
        return clean_error(kind, SEALED_TEXT, stack), fingerprint(kind, stack.strip()[-200:])
    if isinstance(error, ChildError):
        return clean_error(error.kind, str(error), error.stack), fingerprint(error.kind, str(error))
    kind = type(error).__name__
    message = error.message if isinstance(error, HoldfastError) else words_of(error)
    return clean_error(kind, message, format_stack(error)), fingerprint(kind, message)


def format_stack(error: BaseException) -> str:
    """Return the frames of an error, from the handler on, and with them its causes or the errors of a group."""
    frames = _skip_our_frames(error.__traceback__)
    has_more = error.__cause__ is not None or isinstance(error, BaseExceptionGroup)
    if not has_more and (error.__context__ is None or error.__suppress_context__):
        return "".join(traceback.format_tb(frames))
    return "".join(traceback.format_exception(type(error), error, frames))


def format_places(error: BaseException) -> str:
    """Return the frames of an error and of what led to it, each by its class alone."""
    parts = [*traceback.format_tb(_skip_our_frames(error.__traceback__))]
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        hidden = current.__suppress_context__
        current = current.__cause__ or (None if hidden else current.__context__)
        if current is not None:
            parts.append(f"after {type(current).__name__}:\n")
            parts += traceback.format_tb(_skip_our_frames(current.__traceback__))
    return "".join(parts)


def _skip_our_frames(frames: TracebackType | None) -> TracebackType | None:
    """Leave out how we came to call the handler."""
    first = frames
    while first is not None and _module_of(first.tb_frame).startswith(_OUR_MODULES):
        first = first.tb_next
    # An error of our own making has no other frames.
    return first or frames


def locate_handler(handler: Any, awaited: Any) -> str:
    """Say where a handler is now: in a thread, or in the coroutines that a task awaits; "" when that is unknown."""
    code = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    for frame in list(sys._current_frames().values()):
        if any(each.f_code is code for each, _ in traceback.walk_stack(frame)):
            return _describe_frame(frame)
    frames = [
        each
        for each in _awaited_frames(awaited)
        if not _module_of(each).startswith((*_OUR_MODULES, "asyncio."))
    ]
    return _describe_frame(frames[-1]) if any(each.f_code is code for each in frames) else ""


def _awaited_frames(awaited: Any) -> Iterator[FrameType]:
    """The frames of a coroutine and of those it awaits, from the outermost on."""
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            yield frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)


def _module_of(frame: FrameType) -> str:
    module: str = frame.f_globals.get("__name__", "")
    return module


def _describe_frame(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
