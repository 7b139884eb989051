"""Records outcomes: all that gathered since the last flush in one fenced statement, then everything that follows.

`Completer` writes almost all of them. `SlowCompleter` writes, on a connection of its own, those that may wait for
locks: awaited jobs, successors with blockers, attempts that get a cost back, rows locked by a transaction.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from holdfast.commands.attempts import FinishReport, finish_attempts, read_lease_status
from holdfast.commands.blockers import FanIn
from holdfast.core.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseUnreachable,
    HoldfastError,
    TransactionError,
)
from holdfast.core.lifecycle import EXPIRED
from holdfast.core.records import Finish, Finished, Held, LeaseStatus
from holdfast.extensions import count_costs
from holdfast.notify.base import Hint
from holdfast.storage.database import Link
from holdfast.worker.admission import Admission
from holdfast.worker.attempt import LOST, Attempt, Backlog, lost_reason
from holdfast.worker.claimer import Claimer
from holdfast.worker.notifications import WorkerHints
from holdfast.worker.resolve_outcome import describe_error, make_finish, match_earlier_write
from holdfast.worker.worker_context import WorkerContext

FLUSH_MAX = 1_000
STATEMENT_MAX_BYTES = 4 * 1024 * 1024
"""What one statement may carry: an output alone may have a megabyte, and a statement has its time limit."""
LARGE_OUTCOME_BYTES = STATEMENT_MAX_BYTES // 64
TOGETHER = 100
"""Awaited jobs that end in one transaction: jobs that wait for many of them are locked once for all."""
SMALL_FLUSH = 64
GATHER_S = 0.025
"""A flush of fewer outcomes than that does not begin sooner after the last one, unless one of them is awaited: it
costs nearly as much as a large one."""
FREE_AFTER_S = 0.5
"""Empty leases go with the next flush; without one for so long they are deleted by themselves."""
RETRY_MIN_S = 0.05
RETRY_MAX_S = 2.0


class PendingOutcome(msgspec.Struct, gc=False):
    """An outcome to be written, waiting since a time of the clock; unsure when an earlier try may have written it."""

    attempt: Attempt
    finish: Finish
    since: float
    size: int
    unsure: bool = False
    is_replacement: bool = False
    is_settled: bool = False


class Recorder:
    """Knows which outcomes are not recorded yet, and does what follows once one is. On the loop.

    After the commit of an outcome its lease is freed, its event emitted, and hints sent for what became due.
    """

    def __init__(
        self,
        context: WorkerContext,
        claimer: Claimer,
        hints: WorkerHints,
        admission: Admission,
        backlog: Backlog,
    ) -> None:
        self._held_leases = context.held_leases
        self._emitter = context.emitter
        self._claimer = claimer
        self._claims = context.wakes.claims
        self.hints = hints
        self._ends_by_itself = (
            context.options.stop_when_idle or context.options.max_items is not None
        )
        self._admission = admission
        self.backlog = backlog
        self.all_settled = asyncio.Event()
        self.all_settled.set()

    def add(self, attempt: Attempt, finish: Finish, now: float) -> PendingOutcome:
        """Take an outcome that is to be written."""
        if self._admission.unrecorded == 0:
            self.all_settled.clear()
        self._admission.unrecorded += 1
        return PendingOutcome(attempt, finish, now, size_of(finish))

    def accept(self, recorded: Sequence[PendingOutcome]) -> None:
        """Act on outcomes that are recorded."""
        self._held_leases.remove([each.attempt for each in recorded])
        for each in recorded:
            self.announce(each.attempt, each.finish)
        self._settle(recorded)

    def resolve(self, pending: PendingOutcome, status: LeaseStatus) -> None:
        """Act on an outcome whose token is no longer valid: an earlier try has written it, or it is refused."""
        earlier = match_earlier_write(pending.finish, status, pending.unsure)
        if earlier is not None:
            pending.finish = earlier
            self.accept([pending])
            # Nobody was told what its first commit made due.
            self._claimer.hint()
            return
        self._settle([pending])
        self._held_leases.remove_lost(pending.attempt)
        self._emitter.emit_refused(pending.attempt, lost_reason(status) or "already_completed")

    def _settle(self, settled: Sequence[PendingOutcome]) -> None:
        for each in settled:
            each.is_settled = True
        self._admission.unrecorded -= len(settled)
        if self._admission.unrecorded == 0:
            self.all_settled.set()
        self.resume()

    def resume(self) -> None:
        """Have handlers begin and jobs be claimed again, if they were held back and no longer are."""
        if self._admission.has_caught_up():
            self.backlog.resume()
            self._claims.set()

    def announce(self, attempt: Attempt, finish: Finish) -> None:
        """Emit the event of a recorded outcome and send the hints that follow from it."""
        self._emitter.emit_finished(attempt, finish)
        if finish.gate is not None:
            # Its place in the partition is free: for us, or for another worker with a free slot.
            self._claimer.hint(attempt.type.name)
            self.hints.send_soon(Hint("due", attempt.type.name))
        match finish.kind:
            case "continue" if finish.next is not None:
                self._claimer.hint(finish.next.type)
                self.hints.send_soon(Hint("due", finish.next.type))
            case "retry" | "snooze" | "park":
                self._claimer.expect_later()
            case "release":
                # It keeps its place, which lies before every worker's cursor.
                self._claimer.hint(attempt.type.name, full_scan=True)
                self.hints.send_soon(Hint("look", attempt.type.name))
            case _:
                self.hints.send_ended(attempt.claimed.chain_id)
        if self._ends_by_itself:
            self._claims.set()

    def announce_ended(self, chains: Sequence[str], fan_in: FanIn) -> None:
        """Send the hints of chains that ended otherwise than by an attempt of ours."""
        for each in chains:
            self.hints.send_ended(each)
        self.announce_unblocked(fan_in)

    def announce_unblocked(self, fan_in: FanIn) -> None:
        """Emit and send what follows when the end of awaited chains unblocked, or failed, other jobs."""
        self._emitter.emit_unblocked(fan_in.opened)
        for type in {each.type for each in fan_in.opened}:
            self._claimer.hint(type)
            self.hints.send_soon(Hint("due", type))
        for each in fan_in.failed:
            self.hints.send_ended(each.chain_id)


class Completer:
    """One loop that flushes what has gathered while the last flush was under way.

    A lone outcome is written at once; under load the flushes grow by themselves, and they halve when they fail.
    What a flush misses is looked up: lost ones are refused; awaited ones and those locked by a transaction go to the
    slow completer, which delays no others.
    """

    def __init__(
        self,
        context: WorkerContext,
        link: Link,
        recorder: Recorder,
        claimer: Claimer,
        slow: SlowCompleter,
        admission: Admission,
    ) -> None:
        self._context = context
        self._link = link
        self._recorder = recorder
        self._claimer = claimer
        self._slow = slow
        self._admission = admission
        self._pending: list[PendingOutcome] = []
        self._wake = context.wakes.flushes
        self._urgent = context.wakes.urgent_flushes
        self._flushed_at = -math.inf
        self._free_at = math.inf
        self._delay = 0.0
        self._flush_max = FLUSH_MAX
        self._is_ending = False
        self._monotonic = context.clock.monotonic

    def submit(self, attempt: Attempt, finish: Finish, unsure: bool = False) -> None:
        """Have an outcome written with the next flush; unsure when it may be written already."""
        now = attempt.ended_at or self._monotonic()
        pending = self._recorder.add(attempt, finish, now)
        pending.unsure = unsure
        if finish.next_blockers or finish.on_failed or (finish.gate and attempt.is_refunded):
            self._slow.add(pending)
            return
        self._admission.note_pending(now)
        self._pending.append(pending)
        self._wake.set()
        if len(self._pending) >= SMALL_FLUSH or not self._may_wait(attempt, finish):
            self._urgent.set()

    def accept_committed(self, attempt: Attempt, finish: Finish, report: FinishReport) -> None:
        """Act on an outcome that was recorded in the handler's own transaction."""
        self._context.held_leases.remove([attempt])
        self._wake.set()
        self._recorder.announce(attempt, finish)
        self._recorder.announce_unblocked(report.fan_in)

    def refuse(self, attempt: Attempt) -> None:
        """Act on a handler that returned after it had lost its lease."""
        self._context.held_leases.remove_lost(attempt)
        reason = attempt.abort_reason or "taken_by_another_worker"
        self._context.emitter.emit_refused(attempt, reason)

    def release(self, attempts: Iterable[Attempt]) -> int:
        """Give back what no slot has started, without costing an attempt; return how many were still ours to give."""
        count = 0
        for attempt in attempts:
            self._claimer.return_unstarted(attempt)
            if attempt.abort_reason not in LOST and attempt.take_ending("slot"):
                self.submit(attempt, make_finish(attempt, self._context.id, "release"))
                count += 1
        return count

    def expire(self, attempt: Attempt) -> None:
        """Cancel what came too late to begin."""
        self._claimer.return_unstarted(attempt)
        if attempt.take_ending("slot"):
            self.submit(attempt, make_finish(attempt, self._context.id, "cancel", error=EXPIRED))

    async def run(self) -> None:
        """Flush until cancelled; the worker does that when all is written."""
        while True:
            await self._wait_for_outcomes()
            while self._pending:
                await self._gather()
                self._urgent.clear()
                self._flushed_at = asyncio.get_running_loop().time()
                batch = self._next_batch()
                try:
                    await self._flush(batch)
                except Exception as error:
                    await self._back_off(batch, error)
                else:
                    self._delay = 0.0
                    self._flush_max = min(FLUSH_MAX, max(self._flush_max, 2 * len(batch)))
                    self._admission.note_flushed(batch)
                    self._note_left()

    async def _wait_for_outcomes(self) -> None:
        """Wait until there is something to write; meanwhile delete empty leases, a while after they became so."""
        held_leases = self._context.held_leases
        while not self._pending:
            self._wake.clear()
            if self._is_ending or not held_leases.has_empty:
                self._free_at = math.inf
                await self._wake.wait()
                continue
            now = self._monotonic()
            self._free_at = min(self._free_at, now + FREE_AFTER_S)
            if now < self._free_at:
                await self._context.clock.wait(self._wake, self._free_at - now)
            else:
                await self.free_leases()
                self._free_at = math.inf

    def _may_wait(self, attempt: Attempt, finish: Finish) -> bool:
        """Whether nobody waits for an outcome, and others are likely to follow it."""
        if finish.kind != "complete" or finish.gate is not None or attempt.claimed.awaited:
            return False
        if self._recorder.hints.is_awaited(attempt.claimed.chain_id):
            return False
        return bool(self._admission.running or self._recorder.backlog)

    async def _gather(self) -> None:
        """Put off a small flush that would follow the last one closely.

        By the loop's own clock: this decides what goes together, and nothing else.
        """
        loop = asyncio.get_running_loop()
        wait = self._flushed_at + GATHER_S - loop.time()
        if wait <= 0 or self._is_ending:
            return
        timer = loop.call_later(wait, self._urgent.set)
        try:
            await self._urgent.wait()
        finally:
            timer.cancel()

    def end_soon(self) -> None:
        """Leave empty leases to the worker's last step: this loop may be cancelled in the middle of a statement."""
        self._is_ending = True
        self._wake.set()
        self._urgent.set()

    def _next_batch(self) -> list[PendingOutcome]:
        batch = next(split_batches(self._pending, self._flush_max))
        self._pending = self._pending[len(batch) :]
        return batch

    def _note_left(self) -> None:
        self._admission.note_left(self._pending)
        self._recorder.resume()

    async def _flush(self, batch: Sequence[PendingOutcome]) -> None:
        """Write a batch. Raises: what keeps the database from taking it; what is not settled is not written."""
        finishes = [each.finish for each in batch]
        freed = self._context.held_leases.take_empty()
        self._free_at = math.inf
        try:
            done = await self._link.run(self._context.store.jobs.finish(finishes, freed))
        except BaseException as error:
            self._context.held_leases.put_back(freed)
            if not isinstance(error, Exception) or not is_data_error(error):
                raise
            await self._halve(batch, error)
            return
        self._context.health.report_ok(self._link.purpose)
        missed = self._accept(batch, done)
        if missed:
            await self._look_up(missed)

    def _accept(
        self, batch: Sequence[PendingOutcome], done: Sequence[Finished]
    ) -> list[PendingOutcome]:
        """Accept what was written; return the rest."""
        if len(done) == len(batch):
            self._recorder.accept(batch)
            return []
        hits = {each.id for each in done}
        self._recorder.accept([each for each in batch if each.finish.id in hits])
        return [each for each in batch if each.finish.id not in hits]

    async def _look_up(self, missed: list[PendingOutcome]) -> None:
        """Find out why a flush missed these, and act on it."""
        pairs = [Held(each.finish.id, each.finish.token) for each in missed]
        statuses = await self._link.run(read_lease_status(self._context.store, pairs))
        by_pair = {(each.id, each.token): each for each in statuses}
        for each in missed:
            status = by_pair[each.finish.id, each.finish.token]
            if status.lease == "held":
                self._pass_to_slow(each)
            else:
                self._recorder.resolve(each, status)

    async def _halve(self, batch: Sequence[PendingOutcome], error: Exception) -> None:
        """Find the one outcome that cannot be written, and record that as a failure instead."""
        if len(batch) == 1:
            self._pending.append(make_replacement(batch[0], error))
            return
        middle = len(batch) // 2
        await self._flush(batch[:middle])
        await self._flush(batch[middle:])

    async def free_leases(self) -> None:
        """Delete empty leases when there is nothing else to write."""
        held_leases = self._context.held_leases
        tokens = held_leases.take_empty() + held_leases.take_uncertain()
        if not tokens:
            return
        try:
            await self._link.run(self._context.store.leases.free(tokens))
        except BaseException as error:
            # For the next try, the drain's last one included; after that they expire and the reaper removes them.
            held_leases.put_back(tokens)
            if not isinstance(error, Exception):
                raise
            self._context.health.report_error(self._link.purpose, error)

    async def _back_off(self, batch: Sequence[PendingOutcome], error: Exception) -> None:
        """Keep what was not written and wait before the next try, longer each time; that one is half as large."""
        self._context.health.report_error(self._link.purpose, error)
        self._flush_max = max(1, len(batch) // 2)
        left = [each for each in batch if not each.is_settled]
        for each in left:
            each.unsure = True
        if (
            isinstance(error, DatabaseBusy)
            and len(left) == 1
            and left[0].size > LARGE_OUTCOME_BYTES
        ):
            # So large that it may never get through in time; the others must not wait for it.
            self._pass_to_slow(left.pop())
        self._pending[:0] = left
        self._note_left()
        clock = self._context.clock
        self._delay = min(RETRY_MAX_S, max(RETRY_MIN_S, self._delay * 2))
        await clock.sleep(self._delay * (0.5 + clock.random() / 2))

    def _pass_to_slow(self, pending: PendingOutcome) -> None:
        self._slow.add(msgspec.structs.replace(pending))
        pending.is_settled = True


class SlowOutcome(msgspec.Struct):
    """An outcome with the time of its next try; alone when a try in company did not write it."""

    pending: PendingOutcome
    due_at: float
    delay: float = 0.0
    is_alone: bool = False


class SlowCompleter:
    """Writes on a connection of its own, so that waiting for locks delays no other outcome.

    At first many go together; what that does not write is tried in a transaction each.
    """

    def __init__(self, context: WorkerContext, link: Link, recorder: Recorder) -> None:
        self._context = context
        self._link = link
        self._recorder = recorder
        self._waiting: list[SlowOutcome] = []
        self._wake = asyncio.Event()

    def add(self, pending: PendingOutcome) -> None:
        """Have an outcome written soon."""
        self._waiting.append(SlowOutcome(pending, self._context.clock.monotonic()))
        self._wake.set()

    async def run(self) -> None:
        """Write until cancelled; the worker does that when all is written."""
        clock = self._context.clock
        while True:
            await clock.wait(self._wake, self._until_next())
            self._wake.clear()
            now = clock.monotonic()
            due = [each for each in self._waiting if each.due_at <= now]
            await self._try_together([each for each in due if not each.is_alone])
            for outcome in due:
                if outcome.is_alone and not outcome.pending.is_settled:
                    await self._try_alone(outcome)
            self._waiting = [each for each in self._waiting if not each.pending.is_settled]

    def _until_next(self) -> float | None:
        next_at = min((each.due_at for each in self._waiting), default=None)
        return None if next_at is None else max(0.0, next_at - self._context.clock.monotonic())

    async def _try_together(self, due: list[SlowOutcome]) -> None:
        # Two attempts of one job, an old and a new one, never share a statement.
        by_job = {each.pending.finish.id: each for each in due}
        for each in due:
            each.is_alone = by_job[each.pending.finish.id] is not each
        for batch in split_batches((each.pending for each in by_job.values()), TOGETHER):
            await self._write_together([by_job[each.finish.id] for each in batch])

    async def _write_together(self, batch: list[SlowOutcome]) -> None:
        pendings = [each.pending for each in batch]
        try:
            report = await self._write(pendings)
        except Exception as error:
            for each in batch:
                each.pending.unsure = True
                if isinstance(error, DatabaseUnreachable):
                    self._handle_error(each, error)
                else:
                    each.is_alone = True
            return
        hits = {each.id for each in report.accepted}
        self._accept([each for each in pendings if each.finish.id in hits], report)
        for each in batch:
            each.is_alone = not each.pending.is_settled

    async def _try_alone(self, outcome: SlowOutcome) -> None:
        pending = outcome.pending
        try:
            status = await self._write_alone(pending)
        except Exception as error:
            pending.unsure = True
            self._handle_error(outcome, error)
            return
        self._context.health.report_ok(self._link.purpose)
        if status is not None and status.lease == "held":
            self._retry_later(outcome)
        elif status is not None:
            self._recorder.resolve(pending, status)

    async def _write_alone(self, pending: PendingOutcome) -> LeaseStatus | None:
        """Try once; return the job's status when it could not be written."""
        store, finish = self._context.store, pending.finish
        report = await self._write([pending])
        if report.accepted:
            self._accept([pending], report)
            return None
        (status,) = await self._link.run(read_lease_status(store, [Held(finish.id, finish.token)]))
        return status

    async def _write(self, pendings: Sequence[PendingOutcome]) -> FinishReport:
        for each in pendings:
            if each.attempt.is_refunded:
                await self._link.run(count_costs().refund(self._context.store, each.attempt))
        finishes = [each.finish for each in pendings]
        return await self._link.run_atomic(finish_attempts(self._context.store, finishes))

    def _accept(self, written: Sequence[PendingOutcome], report: FinishReport) -> None:
        for each in written:
            each.finish = report.outcome_of(each.finish)
        self._recorder.accept(written)
        self._recorder.announce_unblocked(report.fan_in)

    def _handle_error(self, outcome: SlowOutcome, error: Exception) -> None:
        if is_data_error(error) and not outcome.pending.is_replacement:
            outcome.pending = make_replacement(outcome.pending, error)
            return
        self._context.health.report_error(self._link.purpose, error)
        self._retry_later(outcome)

    def _retry_later(self, outcome: SlowOutcome) -> None:
        """Locked by a transaction, or no database: try again, less often each time."""
        clock = self._context.clock
        outcome.delay = min(RETRY_MAX_S, max(RETRY_MIN_S, outcome.delay * 2))
        outcome.due_at = clock.monotonic() + outcome.delay * (0.5 + clock.random() / 2)


def size_of(finish: Finish) -> int:
    """About how many bytes an outcome is."""
    size = 0
    if finish.output is not None:
        size += len(finish.output)
    if finish.error is not None:
        size += len(finish.error)
    if finish.next is not None:
        size += len(finish.next.input)
    return size


def split_batches(
    pending: Iterable[PendingOutcome], max_size: int
) -> Iterator[list[PendingOutcome]]:
    """Split outcomes into batches that one statement may carry, each job at most once in a batch."""
    batch: dict[str, PendingOutcome] = {}
    size = 0
    for each in pending:
        is_full = len(batch) >= max_size or size + each.size > STATEMENT_MAX_BYTES
        if batch and (is_full or each.finish.id in batch):
            yield list(batch.values())
            batch, size = {}, 0
        batch[each.finish.id] = each
        size += each.size
    if batch:
        yield list(batch.values())


def make_replacement(pending: PendingOutcome, error: Exception) -> PendingOutcome:
    """Make the failure that says an outcome could not be written. Raises: the error, when that could not be either."""
    if pending.is_replacement:
        raise error
    pending.is_settled = True
    attempt = pending.attempt
    text, print_ = describe_error(error, attempt.sealed)
    due = None if attempt.type.on_failed is None else "due"
    values = {"error": text, "fingerprint": print_, "on_failed": due}
    finish = make_finish(attempt, pending.finish.worker, "fail", **values)
    return PendingOutcome(
        attempt, finish, pending.since, size_of(finish), pending.unsure, is_replacement=True
    )


def is_data_error(error: Exception) -> bool:
    """Whether an error lies in what was to be written, by the names that every driver shares (PEP 249).

    A text or number that no driver can send never reaches the database; what it raises is one of Python's own errors.
    """
    if isinstance(error, DatabaseError | TransactionError):
        return False
    if isinstance(error, HoldfastError):
        return not error.retryable
    if isinstance(error, ValueError | TypeError | OverflowError):
        return True
    names = {kind.__name__ for kind in type(error).__mro__}
    return not names.isdisjoint({"DataError", "IntegrityError"})
