"""What one attempt emits: kept in memory for a moment, cut into batches, and written under the attempt's token."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.codec import encode_any
from holdfast.core.errors import LeaseLost
from holdfast.core.records import Finish, Held
from holdfast.core.sealing import seal_output
from holdfast.steps.current import running_step
from holdfast.storage.operation import Op, run, run_async
from holdfast.storage.store import Store
from holdfast.worker.attempt import LOST, Attempt, lost_reason
from holdfast.worker.handler_transactions import ResolveOutput
from holdfast.worker.job import Job
from holdfast_output.errors import EmitTooLate, OutputFull
from holdfast_output.output_store import (
    HeldJob,
    NewBatch,
    append,
    read_said,
    read_tail,
    trim,
    void_step,
)

if TYPE_CHECKING:
    from holdfast_output.emission_writer import EmissionWriter

ITEM_BYTES = 256 * 1024
"""The largest item."""

BATCH_BYTES = 256 * 1024
"""A batch is not longer than this, unless one item is."""

BATCH_ITEMS = 2_000

LOOK_S = 0.2
"""How often an attempt that waits for its last batches looks whether it has lost its job."""

_EARLIER = 0
"""In place of the try of a step: one of an earlier attempt."""


class OutputLimits(NamedTuple):
    """How much one attempt may emit."""

    items: int
    bytes: int


class _Item(NamedTuple):
    text: str
    step: str | None
    tries: int


class Emission:
    """What one attempt emits. `add` is called on the loop or from threads, the rest where it is written.

    A durable function that goes on continues its epoch: what it emitted between its steps is not written again. A step
    that is run again, and emits, begins a new epoch, without what it had said before.
    """

    def __init__(self, job: Job[Any], writer: EmissionWriter, limits: OutputLimits) -> None:
        claimed = job.claimed
        self._job = job
        self._writer = writer
        self._limits = limits
        self._lock = threading.Lock()
        self._items: deque[_Item] = deque()
        self._batches: list[NewBatch] = []
        self._count = self._bytes = 0
        self._is_open = False
        self._is_ended = False
        self._error: Exception | None = None
        self._epoch = self._last = self._repeats = 0
        self._tries: dict[str, int] = {}
        self._void: str | None = None
        self._voided: tuple[int, str, int] | None = None
        self.held = HeldJob(claimed.chain_id, claimed.id, claimed.token)
        self.ended: Future[None] | None = None
        """Resolved when all is written or refused, once the attempt has ended."""

    @property
    def attempt(self) -> Attempt:
        """The attempt that emits."""
        return self._job.attempt_state

    @property
    def is_deferred(self) -> bool:
        """Whether it is written by the transaction that completes the job, and by nothing before it."""
        job = self._job
        if self.ended is not None:
            return False
        return job.own_transaction is not None or (
            job.completion is not None and job.completion.is_open
        )

    @property
    def has_work(self) -> bool:
        """Whether something is to be written."""
        return bool(self._items or self._batches)

    def add(self, data: Any) -> None:
        """Take an item. Raises: PayloadError, OutputFull, EmitTooLate, LeaseLost."""
        text = encode_any(data, ITEM_BYTES)
        step = running_step.get()
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._is_ended or self._job.own_transaction is not None:
                raise EmitTooLate(f"the attempt of {self._job.type} has ended")
            count, size = self._count + 1, self._bytes + _bytes_of(text)
            if count > self._limits.items or size > self._limits.bytes:
                raise OutputFull(
                    f"an attempt of {self._job.type} may emit {self._limits.items:,} items"
                    f" and {self._limits.bytes:,} bytes"
                )
            self._count, self._bytes = count, size
            item = _Item(text, None, 0) if step is None else _Item(text, step.id, step.attempt)
            is_first = not self._items
            self._items.append(item)
        if is_first:
            self._writer.wake()

    async def end(self, error: BaseException | None = None) -> None:
        """Write the rest before the attempt's outcome is. Raises: LeaseLost, SealError, unless `error` ended it."""
        with self._lock:
            self._is_ended = True
        job, completion = self._job, self._job.completion
        if completion is not None and completion.is_open:
            if error is None:
                op = self.write_rest(self._writer.store)
                if completion.is_async:
                    await run_async(op, completion.tx)
                else:
                    await asyncio.to_thread(run, op, completion.tx)
            self._writer.drop(self)
        elif job.own_transaction is not None and error is None:
            self._writer.drop(self)
        elif error is None:
            await self._flush()
        else:
            with suppress(Exception):
                await self._flush()

    def go_on(self) -> None:
        """Take more after the end: what undoes the steps of a function emits, too."""
        with self._lock:
            self._is_ended, self.ended = False, None
        self._writer.register(self)

    async def _flush(self) -> None:
        """Wait until all is written; an attempt that has lost its job does not."""
        with self._lock:
            if self._error is None and self.has_work:
                self.ended = Future()
        if self.ended is not None:
            self._writer.wake(at_once=True)
            while not self.ended.done() and self.attempt.abort_reason not in LOST:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await asyncio.shield(asyncio.wrap_future(self.ended))
        self._writer.drop(self)
        if self._error is not None:
            raise self._error

    def write_before(self, resolve: ResolveOutput) -> ResolveOutput:
        """Return what resolves an output after the rest is written, in the transaction that completes the job."""

        def write_and_resolve(attempt: Attempt, output: Any) -> Op[Finish]:
            yield from self.write_rest(self._writer.store)
            return (yield from resolve(attempt, output))

        return write_and_resolve

    def write_rest(self, store: Store) -> Op[None]:
        """Write all there is in a transaction that others can see, under the lock of the job. Raises: LeaseLost."""
        # Before anything is written: who writes in between has the job's row, and waits for a number of ours.
        yield from store.leases.guard(self.attempt.policy.lease_ms // 2)
        yield from store.jobs.lock([self.held.job])
        while self.has_work:
            yield from self.open()
            batches = self.cut()
            written = yield from append(batches, self._writer.now())
            if len(written) < len(batches):
                (status,) = yield from store.jobs.lease_status(
                    [Held(self.held.job, self.held.token)]
                )
                reason = lost_reason(status) or "already_completed"
                raise LeaseLost(reason, "what was emitted was refused")
            self.acknowledge(batches)

    def open(self) -> Op[None]:
        """Find the place of what is to be written; begin the next epoch where a step is run again."""
        if self._voided is not None:
            # The transaction in which that was done may have been rolled back; if not, this changes nothing.
            yield from void_step(self.held, *self._voided)
        if not self._is_open:
            tail = yield from read_tail(self.held)
            claimed = self.attempt.claimed
            continues = bool(tail.epoch) and (bool(claimed.steps) or claimed.failing)
            self._last, self._epoch = tail.last, tail.epoch if continues else tail.epoch + 1
            if not continues and tail.epoch > 1:
                yield from trim(self.held, self._epoch)
            said = (yield from read_said(self.held, self._epoch)) if continues else []
            with self._lock:
                for each in said:
                    if each.step is not None:
                        self._tries[each.step] = _EARLIER
                        self._count, self._bytes = (
                            self._count + each.items,
                            self._bytes + each.bytes,
                        )
                    elif not claimed.failing:
                        self._repeats = each.items
                self._is_open = True
        elif self._void is not None and not self._batches:
            self._voided = self._epoch, self._void, self._last
            yield from void_step(self.held, *self._voided)
            tail = yield from read_tail(self.held)
            with self._lock:
                self._tries.pop(self._void, None)
                self._void, self._last, self._epoch = None, tail.last, self._epoch + 1

    def cut(self) -> list[NewBatch]:
        """Cut what was added into batches, up to where a step is run again; return all that are not written."""
        with self._lock:
            while self._items and self._void is None:
                texts: list[str] = []
                size, step = 0, self._items[0].step
                while self._items and len(texts) < BATCH_ITEMS and size < BATCH_BYTES:
                    item = self._items[0]
                    if item.step != step or self._is_said_again(item):
                        break
                    self._items.popleft()
                    if step is None and self._repeats:
                        self._repeats -= 1
                        continue
                    texts.append(item.text)
                    size += _bytes_of(item.text)
                if texts:
                    self._batches.append(self._new_batch(texts, step))
            return list(self._batches)

    def _is_said_again(self, item: _Item) -> bool:
        if item.step is None:
            return False
        known = self._tries.setdefault(item.step, item.tries)
        if known != item.tries:
            self._void = item.step
        return known != item.tries

    def _new_batch(self, texts: list[str], step: str | None) -> NewBatch:
        data = f"[{','.join(texts)}]"
        attempt = self.attempt
        if attempt.sealed:
            data = seal_output(attempt.type.sealer, data, self.held.chain, attempt.type.name)
        first, self._last = self._last + 1, self._last + len(texts)
        chain, job, token = self.held.chain, self.held.job, self.held.token
        return NewBatch(chain, job, token, first, self._last, self._epoch, step, data)

    def acknowledge(self, batches: list[NewBatch]) -> int:
        """Forget batches that are written; return how many items those were."""
        known = {id(each) for each in batches}
        with self._lock:
            self._batches = [each for each in self._batches if id(each) not in known]
            self._voided = None
            ended = self.ended
            is_done = not self.has_work
        if is_done and ended is not None and not ended.done():
            ended.set_result(None)
        return sum(each.last - each.first + 1 for each in batches)

    def refuse(self, error: Exception) -> None:
        """Give up: nothing more of this attempt is written, and its handler learns so with its next item."""
        with self._lock:
            self._error = error
            self._items.clear()
            self._batches.clear()
            ended = self.ended
        if ended is not None and not ended.done():
            ended.set_result(None)


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


OpenEmission = Callable[[Job[Any]], Emission]
