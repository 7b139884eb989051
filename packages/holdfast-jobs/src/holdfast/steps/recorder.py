"""Writes the records of all functions of a worker: what gathered since the last flush, each under its job's token.

A record that a flush missed is asked for again alone, where it waits for the lock of its job, before the lease counts
as lost. While the database cannot be reached it is tried again; the lease decides for how long.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from holdfast.core.errors import Aborted, LeaseLost
from holdfast.core.records import Held
from holdfast.core.steps import (
    ClosedStep,
    NewStep,
    RecordedBefore,
    StepId,
    StepRecord,
    Written,
    WrittenStep,
)
from holdfast.storage.database import Link
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast.worker.attempt import LOST, Attempt, lost_reason
from holdfast.worker.completer import RETRY_MAX_S, RETRY_MIN_S, is_data_error
from holdfast.worker.worker_context import WorkerContext

FLUSH_MAX = 500

Row = NewStep | ClosedStep


class PendingRecords(msgspec.Struct, eq=False):
    """Records of one function that are written together, whatever becomes of the caller."""

    attempt: Attempt
    rows: Sequence[Row]
    answer: Written | Exception | None = None
    waiter: asyncio.Future[None] | None = None

    def settle(self, answer: Written | Exception) -> None:
        """Set what came of them, unless that is known."""
        if self.answer is None:
            self.answer = answer
            if self.waiter is not None and not self.waiter.done():
                self.waiter.set_result(None)

    def written(self) -> Written:
        """Return what was written. Raises: LeaseLost, Aborted, and what is wrong with a record itself."""
        if isinstance(self.answer, Exception):
            raise self.answer
        assert self.answer is not None
        return self.answer


class StepRecorder:
    """One loop that writes what has gathered while the last flush was under way; it starts with the first record.

    A function that nobody else writes beside does so itself: on the way to the loop and back is a tenth of a lone step.
    """

    def __init__(self, context: WorkerContext, link: Link) -> None:
        self._context = context
        self._link = link
        self._pending: list[PendingRecords] = []
        self._flushing: list[PendingRecords] = []
        self._is_closed = False
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.Future[None] | None = None
        self._is_lone = False
        self._own: PendingRecords | None = None
        self._delay = 0.0

    def write(self, attempt: Attempt, rows: Sequence[Row]) -> PendingRecords:
        """Have records written, and return them to be waited for. On the loop."""
        pending = PendingRecords(attempt, rows)
        if self._is_closed:
            pending.settle(Aborted("shutdown"))
            return pending
        self._pending.append(pending)
        if self._own is None:
            if self._is_lone and self._idle is not None and not self._idle.done():
                self._own = pending
            else:
                self._wake()
        return pending

    async def wait(self, pending: PendingRecords) -> None:
        """Wait until records are committed or refused. A caller that is cancelled may wait again."""
        if pending is self._own:
            try:
                await self._flush_next()
            except asyncio.CancelledError:
                # It may have been written: to write it again comes to the same.
                if pending.answer is None and pending not in self._pending:
                    self._pending.insert(0, pending)
                raise
            finally:
                self._own = None
                if self._pending:
                    self._wake()
        if pending.answer is None:
            pending.waiter = asyncio.get_running_loop().create_future()
            await pending.waiter

    def _wake(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
        elif self._task is None or self._task.done():
            self._task = asyncio.create_task(self._flush_all(), name="holdfast steps")

    async def close(self) -> None:
        """End the loop; the handlers have ended before, or are left to their own."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for each in (*self._flushing, *self._pending):
            each.settle(Aborted("shutdown"))
        self._pending = []

    async def _flush_all(self) -> None:
        while True:
            if not self._pending:
                self._idle = asyncio.get_running_loop().create_future()
                await self._idle
            await self._flush_next()

    async def _flush_next(self) -> None:
        batch, self._pending = self._pending[:FLUSH_MAX], self._pending[FLUSH_MAX:]
        self._flushing = batch = [each for each in batch if not _give_up(each)]
        self._is_lone = len(batch) == 1
        try:
            await self._flush(batch)
        except Exception as error:
            await self._back_off(batch, error)
        else:
            self._delay = 0.0

    async def _flush(self, batch: Sequence[PendingRecords]) -> None:
        """Write a batch. Raises: what keeps the database from taking it."""
        rows = [row for each in batch for row in each.rows]
        try:
            written = await self._link.run(write_first(self._context.store, rows))
        except Exception as error:
            if not is_data_error(error):
                raise
            if len(batch) == 1:
                await self._write_alone(batch[0])
                return
            # One of them cannot be written; the others are not to blame.
            for each in batch:
                await self._flush([each])
            return
        self._context.health.report_ok(self._link.purpose)
        if len(batch) == 1 and len(written) == len(rows):
            batch[0].settle({_id_of(step): step.until for step in written})
            return
        known: dict[str, Written] = defaultdict(dict)
        for step in written:
            known[step.job_id][_id_of(step)] = step.until
        for each in batch:
            found = known.get(each.attempt.claimed.id, {})
            ids = [_id_of(row) for row in each.rows]
            if all(id in found for id in ids):
                each.settle({id: found[id] for id in ids})
            else:
                await self._write_alone(each)

    async def _write_alone(self, pending: PendingRecords) -> None:
        """Write what a flush has missed: it was lost, its row was locked, it was there already or is wrong."""
        claimed = pending.attempt.claimed
        held = Held(claimed.id, claimed.token)
        try:
            written = await self._link.run_atomic(
                write_held(self._context.store, held, pending.rows)
            )
        except LeaseLost as error:
            self._context.emitter.emit_refused(pending.attempt, error.reason)
            pending.settle(error)
        except Exception as error:
            if not is_data_error(error):
                raise
            pending.settle(error)
        else:
            pending.settle(written)

    async def _back_off(self, batch: Sequence[PendingRecords], error: Exception) -> None:
        """Try again later, less often each time."""
        self._context.health.report_error(self._link.purpose, error)
        left = [each for each in batch if each.answer is None]
        self._pending = [*left, *self._pending]
        clock = self._context.clock
        self._delay = min(RETRY_MAX_S, max(RETRY_MIN_S, self._delay * 2))
        await clock.sleep(self._delay * (0.5 + clock.random() / 2))


def write_once(store: Store, held: Held, row: NewStep) -> Op[None]:
    """Write a record as the last thing of a transaction. Raises: RecordedBefore, LeaseLost, DatabaseBusy."""
    (written,) = (yield from write_held(store, held, [row])).values()
    if isinstance(written, StepRecord):
        raise RecordedBefore(written)


def write_held(store: Store, held: Held, rows: Sequence[Row]) -> Op[Written]:
    """Write records under a lock of their job that is waited for. Raises: LeaseLost, DatabaseBusy.

    The job's row stays locked until the commit, so what is there already was written by this attempt.
    """
    yield from store.jobs.lock([held.id])
    (status,) = yield from store.jobs.lease_status([held])
    if status.lease != "held":
        raise LeaseLost(lost_reason(status) or "already_completed", "the record was refused")
    answer: Written = {_id_of(each): each.until for each in (yield from _write(store, rows))}
    missing = {id for row in rows if (id := _id_of(row)) not in answer}
    if missing:
        known = yield from store.steps.of_jobs([held.id])
        answer.update({each.id: each for each in known if each.id in missing})
    return answer


def write_first(store: Store, rows: Sequence[Row]) -> Op[list[WrittenStep]]:
    """Write what was most likely not written before."""
    lone = rows[0] if len(rows) == 1 else None
    if isinstance(lone, NewStep) and lone.state == "done" and not lone.marks:
        return store.steps.append(lone)
    return _write(store, rows)


def _write(store: Store, rows: Sequence[Row]) -> Op[list[WrittenStep]]:
    new = [row for row in rows if isinstance(row, NewStep)]
    if len(new) == len(rows):
        return (yield from store.steps.record(new))
    closed = [row for row in rows if isinstance(row, ClosedStep)]
    written = yield from store.steps.close(closed)
    return written + ((yield from store.steps.record(new)) if new else [])


def _id_of(row: Row | WrittenStep) -> StepId:
    return StepId(row.name, row.key, row.nth)


def _give_up(pending: PendingRecords) -> bool:
    """Whether an attempt has lost its job, so that its records would be refused."""
    reason = pending.attempt.abort_reason
    if reason not in LOST:
        return False
    pending.settle(LeaseLost(str(reason), "the record came too late"))
    return True
