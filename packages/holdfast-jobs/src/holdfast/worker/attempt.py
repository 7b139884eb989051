"""One attempt as the worker holds it, and the backlog of claimed attempts that no slot has taken yet."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, assert_never

import msgspec

from holdfast.core.codec import RESERVED
from holdfast.core.errors import SealError
from holdfast.core.instants import Instant
from holdfast.core.records import ClaimedJob, FailingJob, LeaseStatus
from holdfast.core.registry import JobType
from holdfast.core.retry import Retry
from holdfast.core.sealing import check_sealer, is_sealed, open_input
from holdfast.worker.clock import Clock

if TYPE_CHECKING:
    from holdfast.worker.admission import Admission
    from holdfast.worker.completer import Completer
    from holdfast.worker.held_leases import HeldLease
    from holdfast.worker.options import TypePolicies

AbortReason = Literal[
    "taken_by_another_worker",
    "already_completed",
    "not_found",
    "error",
    "cancelled",
    "timeout",
    "shutdown",
]

PrepareTx = Callable[[Any], Any]
EndedBy = Literal["slot", "heartbeat"]

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
    lease: HeldLease | None = None
    progress: tuple[float, str] | None = None
    started_at: float | None = None
    ended_at: float | None = None
    timeout_at: float | None = None
    abort_reason: AbortReason | None = None
    aborted_at: float | None = None
    ended_by: EndedBy | None = None
    task: asyncio.Task[None] | None = None
    own_task: asyncio.Task[Any] | None = None
    """The task that its handler runs in, while that is not the slot's."""
    on_interrupt: Callable[[], None] | None = None
    call_size: int | None = None
    """How many jobs of its key came with it, where a call takes only such."""
    failing: FailingJob | None = None
    """Why its job has failed, while `on_failed` runs."""
    has_undos: bool = False
    """Whether steps of it are to be undone if it fails."""
    sealed: bool = False
    """Whether its payloads are sealed, so that nothing of them may be written in clear."""
    prepare_tx: PrepareTx | None = None
    """Called with each transaction that is opened for its handler; awaited in an async one."""
    unused_steps: Sequence[str] = ()
    """Records that a durable function did not ask for, though it has ended."""
    _flag: threading.Event | None = None

    @property
    def started_instant(self) -> Instant | None:
        """When the handler was called, by the database's clock."""
        if self.started_at is None:
            return None
        return self.claimed.claimed_at + int((self.started_at - self.received_at) * 1_000_000)

    def has_expired(self, now: float) -> bool:
        """Whether its time to begin is over: the job's own, or that of its type since the job became due."""
        claimed, span_ms, until = self.claimed, self.type.expires_ms, self.claimed.expires_at
        if until is None:
            if span_ms is None or claimed.attempt > 1:
                return False
            until = claimed.available_at + span_ms * 1000
        if claimed.failing or claimed.steps:
            return False
        return claimed.claimed_at + int((now - self.received_at) * 1_000_000) >= until

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
    def is_refunded(self) -> bool:
        """Whether it was charged, perhaps, by rates that count costs, for a handler that was not called."""
        flow = self.type.flow
        return flow is not None and flow.max_cost is not None and not self.is_started

    @property
    def is_ending(self) -> bool:
        """Whether its outcome is being written."""
        return self.ended_by is not None

    def take_ending(self, writer: EndedBy) -> bool:
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

    def open_seal(self) -> None:
        """Open a sealed input, in memory only. Raises: SealError."""
        claimed = self.claimed
        if not claimed.input.startswith(RESERVED) and not self.type.sealed and not self.sealed:
            return
        self.sealed = self.sealed or self.type.sealed or is_sealed(claimed.input)
        try:
            if self.sealed:
                check_sealer(self.type.sealer, claimed.type)
            claimed.input = open_input(self.type.sealer, claimed.input, claimed.id, claimed.type)
        except SealError as error:
            error.job_id = claimed.id
            raise

    def interrupt(self) -> None:
        """Interrupt the handler, after `abort`. On the loop."""
        if self.on_interrupt is not None:
            self.on_interrupt()
        if self.task is not None:
            self.task.cancel()


def lost_reason(status: LeaseStatus) -> AbortReason | None:
    """Why a job is no longer held by us; None when it is, or when we ended it ourselves."""
    match status.lease:
        case "held" | "done":
            return None
        case "ended":
            return "cancelled" if status.state == "cancelled" else "already_completed"
        case "taken" | "free":
            return "taken_by_another_worker"
        case "gone":
            return "not_found"
        case _:
            assert_never(status.lease)


WAKE_COUNT = 2
"""So many slots are woken for new work, and as many again by each that finds some: quick handlers need no more."""

START_WITHIN_S = 0.5
"""What no slot has started within this time is released. Ten times as long as claims look ahead."""


class Backlog:
    """A queue of attempts for the slots; taking from a filled one costs no turn of the loop.

    A type at its limit of concurrent calls is passed over until one of its calls ends.
    """

    def __init__(self, policies: TypePolicies, admission: Admission | None = None) -> None:
        """Nothing is given out while admission says that it is full; call `resume` when that is over."""
        self._limit_of = policies.limit
        self._admission = admission
        self._ready: deque[Attempt] = deque()
        self._parked: dict[str, deque[Attempt]] = {}
        self._calls: dict[str, int] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self.filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready) + sum(len(each) for each in self._parked.values())

    def __bool__(self) -> bool:
        return bool(self._ready) or len(self) > 0

    def put(self, attempts: list[Attempt]) -> None:
        """Add attempts in the order of a claim; the more urgent overtake what still waits.

        After `close` they stay here until `close` is called again: a claim's answer may come late.
        """
        if not attempts:
            return
        last = self._ready[-1].claimed.priority if self._ready else attempts[0].claimed.priority
        self._ready.extend(attempts)
        if attempts[0].claimed.priority < last or any(each.claimed.crashes for each in attempts):
            self._ready = deque(sorted(self._ready, key=_urgency))
        self.filled.set()
        self._wake(min(WAKE_COUNT, len(attempts)))

    def take_now(self) -> list[Attempt] | None:
        """Take the next call's attempts, several for a batch handler, if there are any and it may begin."""
        admission = self._admission
        while self._ready and (admission is None or not admission.is_full()):
            attempt = self._ready.popleft()
            name = attempt.type.name
            limit = self._limit_of(name)
            calls = self._calls.get(name, 0)
            if limit is not None and calls >= max(1, limit):
                self._parked.setdefault(name, deque()).append(attempt)
                continue
            self._calls[name] = calls + 1
            if attempt.type.batch is None:
                return [attempt]
            return [attempt, *self._more_like(attempt, attempt.type.batch - 1)]
        return None

    async def take(self) -> list[Attempt] | None:
        """Wait for the next call's attempts; None when the backlog was closed."""
        while True:
            taken = self.take_now()
            if taken is not None:
                if self._ready:
                    self._wake(WAKE_COUNT)
                return taken
            if self._closed:
                return None
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            try:
                await future
            except asyncio.CancelledError:
                self._pass_turn(future)
                raise

    def end_call(self, name: str) -> None:
        """Note that a call of this type's handler has ended."""
        self._calls[name] -= 1
        parked = self._parked.get(name)
        if parked:
            self._ready.appendleft(parked.popleft())
            self._wake(1)

    def resume(self) -> None:
        """Give out again what was held up."""
        self._wake(WAKE_COUNT)

    def reconsider(self) -> None:
        """Put back what was passed over, because limits have changed."""
        parked = [each for attempts in self._parked.values() for each in attempts]
        if parked:
            self._parked = {}
            self._ready = deque(sorted((*parked, *self._ready), key=_urgency))
            self._wake(WAKE_COUNT)

    def take_older(self, received_before: float) -> list[Attempt]:
        """Take what has waited since then or longer, for whatever reason."""
        taken: list[Attempt] = []
        for queue in (self._ready, *self._parked.values()):
            old = [each for each in queue if each.received_at <= received_before]
            if old:
                kept = [each for each in queue if each.received_at > received_before]
                queue.clear()
                queue.extend(kept)
                taken += old
        return taken

    def close(self) -> list[Attempt]:
        """Give out nothing more; return what was never started."""
        self._closed = True
        self.reconsider()
        unstarted = list(self._ready)
        self._ready.clear()
        self._wake(len(self._waiting))
        return unstarted

    def _more_like(self, first: Attempt, count: int) -> list[Attempt]:
        """Take what else is there of a batch handler's type, or of the key; no call waits for its batch to fill."""
        name = first.type.name
        partition = first.claimed.gate if first.call_size is not None else None
        taken: list[Attempt] = []

        def keep(queue: deque[Attempt]) -> deque[Attempt]:
            kept: deque[Attempt] = deque()
            for each in queue:
                is_like = each.type.name == name and partition in (None, each.claimed.gate)
                (taken if is_like and len(taken) < count else kept).append(each)
            return kept

        if name in self._parked:
            self._parked[name] = keep(self._parked[name])
        self._ready = keep(self._ready)
        return taken

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1

    def _pass_turn(self, future: asyncio.Future[None]) -> None:
        """Pass the turn of a slot that was woken and cancelled at once to another."""
        if future in self._waiting:
            self._waiting.remove(future)
        elif self._ready:
            self._wake(1)


class ReleaseOverdue:
    """Releases what was claimed ahead and not started within a moment: another worker may have a slot for it."""

    def __init__(self, clock: Clock, backlog: Backlog, completer: Completer) -> None:
        self._clock = clock
        self._backlog = backlog
        self._completer = completer

    async def run(self) -> None:
        """Check while anything waits; runs until cancelled."""
        while True:
            await self._backlog.filled.wait()
            await self._clock.sleep(START_WITHIN_S / 2)
            overdue = self._backlog.take_older(self._clock.monotonic() - START_WITHIN_S)
            self._completer.release(overdue)
            if not self._backlog:
                self._backlog.filled.clear()


def _urgency(attempt: Attempt) -> tuple[bool, int]:
    """A job with crashes was claimed into a free slot and must not wait behind others."""
    return attempt.claimed.crashes == 0, attempt.claimed.priority
