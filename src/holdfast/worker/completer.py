"""Writes all outcomes, whatever their kind, in one fenced statement per flush.

Outcomes on their way into the database: waiting, recorded, refused, or replaced by a report of failure.

Writes the outcomes that a flush cannot take: awaited jobs, successors with blockers, locked rows.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from holdfast.commands.blockers import FanIn
from holdfast.commands.finish import finish_attempts
from holdfast.core.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseUnreachable,
    HoldfastError,
    TransactionError,
)
from holdfast.core.records import Finish, Finished, Held, Stand
from holdfast.storage.database import Link
from holdfast.worker.attempt import Attempt
from holdfast.worker.context import Workplace
from holdfast.worker.held_leases import Holdings
from holdfast.worker.resolve_outcome import as_it_stands, describe, unwritable

LARGE_BYTES = 4 * 1024 * 1024
"""What one statement may carry: an output alone may have a megabyte, and a statement has its time limit."""


class Pending(msgspec.Struct, gc=False):
    """An outcome that waits to be written since a time of the clock; unsure when an earlier try may have written it."""

    attempt: Attempt
    finish: Finish
    since: float
    size: int
    unsure: bool = False
    is_replacement: bool = False
    is_settled: bool = False


class Recorder(Protocol):
    """Hears what became of outcomes, after commit."""

    def accepted(self, attempt: Attempt, finish: Finish) -> None: ...
    def refused(self, attempt: Attempt, stand: Stand) -> None: ...


class Outcomes:
    """Takes outcomes off the worker's hands once the database has spoken. On the loop."""

    def __init__(self, holdings: Holdings, recorder: Recorder) -> None:
        self._holdings = holdings
        self._recorder = recorder
        self._open = 0
        self.when_settled: Callable[[], None] = lambda: None
        self.all_settled = asyncio.Event()
        self.all_settled.set()

    def __len__(self) -> int:
        """How many are not settled."""
        return self._open

    def wait_for(self, attempt: Attempt, finish: Finish, now: float) -> Pending:
        """Take an outcome that is to be written."""
        if self._open == 0:
            self.all_settled.clear()
        self._open += 1
        return Pending(attempt, finish, now, size_of(finish))

    def end(self, recorded: Sequence[Pending]) -> None:
        """Note outcomes that are recorded."""
        self._holdings.end([each.attempt for each in recorded])
        for each in recorded:
            self._recorder.accepted(each.attempt, each.finish)
        self._close(recorded)

    def settle(self, pending: Pending, stand: Stand) -> None:
        """Act on an outcome whose token no longer stands: an earlier try has written it, or it is refused."""
        earlier = as_it_stands(pending.finish, stand, pending.unsure)
        if earlier is not None:
            pending.finish = earlier
            self.end([pending])
            return
        self._close([pending])
        self._holdings.lose(pending.attempt)
        self._recorder.refused(pending.attempt, stand)

    def _close(self, settled: Sequence[Pending]) -> None:
        for each in settled:
            each.is_settled = True
        self._open -= len(settled)
        if self._open == 0:
            self.all_settled.set()
        self.when_settled()


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


def in_portions(pending: Iterable[Pending], most: int) -> Iterator[list[Pending]]:
    """Cut outcomes into portions that one statement may carry, each job once in a portion."""
    portion: dict[str, Pending] = {}
    size = 0
    for each in pending:
        is_full = len(portion) >= most or size + each.size > LARGE_BYTES
        if portion and (is_full or each.finish.id in portion):
            yield list(portion.values())
            portion, size = {}, 0
        portion[each.finish.id] = each
        size += each.size
    if portion:
        yield list(portion.values())


def replacement(pending: Pending, error: Exception) -> Pending:
    """The report that an outcome could not be written. Raises: the error, when even that report could not be."""
    if pending.is_replacement:
        raise error
    pending.is_settled = True
    finish = unwritable(pending.finish, *describe(error))
    return Pending(
        pending.attempt, finish, pending.since, size_of(finish), pending.unsure, is_replacement=True
    )


def is_about_the_data(error: Exception) -> bool:
    """Whether an error lies in what was to be written, by the names that every driver shares (PEP 249).

    A text or number that no driver can send never reaches the database; what it raises is of Python's own kinds.
    """
    if isinstance(error, DatabaseError | TransactionError):
        return False
    if isinstance(error, HoldfastError):
        return not error.retryable
    if isinstance(error, ValueError | TypeError | OverflowError):
        return True
    names = {kind.__name__ for kind in type(error).__mro__}
    return not names.isdisjoint({"DataError", "IntegrityError"})


SLOW_PURPOSE = "fan-in"
RETRY_MIN_S = 0.05
RETRY_MAX_S = 2.0
TOGETHER = 100
"""Awaited jobs that end in one transaction: those who wait for many of them are locked once for all."""


class Straggler(msgspec.Struct):
    """An outcome with the time of its next try; alone when a try in company did not write it."""

    pending: Pending
    due_at: float
    delay: float = 0.0
    is_alone: bool = False


class Stragglers:
    """On a connection of its own, so that waiting for locks delays nobody else's outcomes.

    At first many go together; what that does not write is tried in a transaction each.
    """

    def __init__(
        self,
        place: Workplace,
        link: Link,
        outcomes: Outcomes,
        opened: Callable[[FanIn], None],
    ) -> None:
        self._place = place
        self._link = link
        self._outcomes = outcomes
        self._opened = opened
        self._waiting: list[Straggler] = []
        self._wake = asyncio.Event()

    def add(self, pending: Pending) -> None:
        """Have an outcome written soon."""
        self._waiting.append(Straggler(pending, self._place.clock.monotonic()))
        self._wake.set()

    async def run(self) -> None:
        """Write for ever; cancelled by the worker when all is written."""
        clock = self._place.clock
        while True:
            await clock.wait(self._wake, self._until_next())
            self._wake.clear()
            now = clock.monotonic()
            due = [each for each in self._waiting if each.due_at <= now]
            await self._try_together([each for each in due if not each.is_alone])
            for straggler in due:
                if straggler.is_alone and not straggler.pending.is_settled:
                    await self._try(straggler)
            self._waiting = [each for each in self._waiting if not each.pending.is_settled]

    def _until_next(self) -> float | None:
        if not self._waiting:
            return None
        return max(0.0, min(each.due_at for each in self._waiting) - self._place.clock.monotonic())

    async def _try_together(self, due: list[Straggler]) -> None:
        # Two attempts of one job, an old and a new one, never share a statement.
        by_job = {each.pending.finish.id: each for each in due}
        for each in due:
            each.is_alone = by_job[each.pending.finish.id] is not each
        for portion in in_portions((each.pending for each in by_job.values()), TOGETHER):
            await self._write_together([by_job[each.finish.id] for each in portion])

    async def _write_together(self, batch: list[Straggler]) -> None:
        pendings = [each.pending for each in batch]
        op = finish_attempts(self._place.store, [each.finish for each in pendings])
        try:
            report = await self._link.run_atomic(op)
        except Exception as error:
            for each in batch:
                each.pending.unsure = True
                if isinstance(error, DatabaseUnreachable):
                    self._failed(each, error)
                else:
                    each.is_alone = True
            return
        hits = {each.id for each in report.accepted}
        self._outcomes.end([each for each in pendings if each.finish.id in hits])
        self._opened(report.fan_in)
        for each in batch:
            each.is_alone = not each.pending.is_settled

    async def _try(self, straggler: Straggler) -> None:
        pending = straggler.pending
        try:
            stand = await self._write(pending)
        except Exception as error:
            pending.unsure = True
            self._failed(straggler, error)
            return
        self._place.trouble.over(SLOW_PURPOSE)
        if stand is None:
            return
        if stand.standing == "held":
            self._later(straggler)
        else:
            self._outcomes.settle(pending, stand)

    async def _write(self, pending: Pending) -> Stand | None:
        """Try once; return how the job stands when it could not be written."""
        store, finish = self._place.store, pending.finish
        report = await self._link.run_atomic(finish_attempts(store, [finish]))
        if report.accepted:
            self._outcomes.end([pending])
            self._opened(report.fan_in)
            return None
        (stand,) = await self._link.run(store.jobs.stand([Held(finish.id, finish.token)]))
        return stand

    def _failed(self, straggler: Straggler, error: Exception) -> None:
        if is_about_the_data(error) and not straggler.pending.is_replacement:
            straggler.pending = replacement(straggler.pending, error)
            return
        self._place.trouble.note(SLOW_PURPOSE, error)
        self._later(straggler)

    def _later(self, straggler: Straggler) -> None:
        """Locked by somebody's transaction, or no database: try again, less often each time."""
        clock = self._place.clock
        straggler.delay = min(RETRY_MAX_S, max(RETRY_MIN_S, straggler.delay * 2))
        straggler.due_at = clock.monotonic() + straggler.delay * (0.5 + clock.random() / 2)


PURPOSE = "complete"
LARGEST_FLUSH = 1_000
MOST_UNRECORDED = 1_000
"""So many outcomes that are not recorded, or one for so long, and nothing new begins: it would be run for nothing if
this process died."""
LATE_S = 1.5
LARGE_ALONE = LARGE_BYTES // 64


class Completer:
    """One loop that flushes what has gathered while the last flush was under way.

    A lone outcome is written at once; under load the flushes grow by themselves, and they halve when they fail.
    What a flush does not hit is asked for: lost ones are refused; awaited ones and those locked by somebody's
    transaction go to `hand_on`, which writes them one by one, so that they delay nobody else.
    """

    def __init__(
        self,
        place: Workplace,
        link: Link,
        outcomes: Outcomes,
        hand_on: Callable[[Pending], None],
    ) -> None:
        self._place = place
        self._link = link
        self._outcomes = outcomes
        self._hand_on = hand_on
        self._pending: list[Pending] = []
        self._wake = asyncio.Event()
        self._delay = 0.0
        self._most = LARGEST_FLUSH
        self._late_at = math.inf
        self._was_behind = False
        self._monotonic = place.clock.monotonic
        self.when_eased: Callable[[], None] = lambda: None
        outcomes.when_settled = self._ease

    def is_behind(self) -> bool:
        """Whether nothing new should begin; `when_eased` is called when that is over."""
        if len(self._outcomes) < MOST_UNRECORDED and (
            self._late_at == math.inf or self._monotonic() < self._late_at
        ):
            return False
        self._was_behind = True
        return True

    def submit(self, attempt: Attempt, finish: Finish) -> None:
        """Have an outcome written with the next flush."""
        now = attempt.ended_at or self._monotonic()
        pending = self._outcomes.wait_for(attempt, finish, now)
        if finish.next_blockers:
            self._hand_on(pending)
            return
        if self._late_at == math.inf:
            self._late_at = now + LATE_S
        self._pending.append(pending)
        self._wake.set()

    def tidy(self) -> None:
        """Have leases removed soon that hold nothing any more."""
        self._wake.set()

    async def run(self) -> None:
        """Flush for ever; cancelled by the worker when all is written."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                batch = self._next_batch()
                try:
                    await self._flush(batch)
                except Exception as error:
                    await self._back_off(batch, error)
                else:
                    self._written(len(batch))
            await self.free()

    def _next_batch(self) -> list[Pending]:
        """Take what has gathered; two attempts of one job, an old and a new one, never share a flush."""
        batch = next(in_portions(self._pending, self._most))
        self._pending = self._pending[len(batch) :]
        return batch

    def _written(self, count: int) -> None:
        """Note a flush that got through."""
        self._delay = 0.0
        self._most = min(LARGEST_FLUSH, max(self._most, 2 * count))
        self._look_at_the_oldest()

    def _look_at_the_oldest(self) -> None:
        self._late_at = self._pending[0].since + LATE_S if self._pending else math.inf
        self._ease()

    def _ease(self) -> None:
        if self._was_behind and not self.is_behind():
            self._was_behind = False
            self.when_eased()

    async def _flush(self, batch: Sequence[Pending]) -> None:
        """Write a batch. Raises: whatever keeps the database from taking it; what is not settled is not written."""
        finishes = [each.finish for each in batch]
        freed = self._place.holdings.take_emptied()
        try:
            done = await self._link.run(self._place.store.jobs.finish(finishes, freed))
        except Exception as error:
            if not is_about_the_data(error):
                raise
            await self._halve(batch, error)
            return
        self._place.trouble.over(PURPOSE)
        missed = self._accept(batch, done)
        if missed:
            await self._explain(missed)

    def _accept(self, batch: Sequence[Pending], done: Sequence[Finished]) -> list[Pending]:
        if len(done) == len(batch):
            self._outcomes.end(batch)
            return []
        hits = {each.id for each in done}
        self._outcomes.end([each for each in batch if each.finish.id in hits])
        return [each for each in batch if each.finish.id not in hits]

    async def _explain(self, missed: list[Pending]) -> None:
        """Find out why a flush did not hit these, and act on it."""
        pairs = [Held(each.finish.id, each.finish.token) for each in missed]
        stands = await self._link.run(self._place.store.jobs.stand(pairs))
        by_pair = {(each.id, each.token): each for each in stands}
        for each in missed:
            stand = by_pair[each.finish.id, each.finish.token]
            if stand.standing == "held":
                self._pass_on(each)
            else:
                self._outcomes.settle(each, stand)

    async def _halve(self, batch: Sequence[Pending], error: Exception) -> None:
        """Find the one outcome that cannot be written, and have that recorded instead."""
        if len(batch) == 1:
            self._pending.append(replacement(batch[0], error))
            return
        middle = len(batch) // 2
        await self._flush(batch[:middle])
        await self._flush(batch[middle:])

    async def free(self) -> None:
        """Remove leases that hold nothing, when there is nothing else to write."""
        holdings = self._place.holdings
        tokens = holdings.take_emptied() + holdings.take_doubtful()
        if not tokens:
            return
        try:
            await self._link.run(self._place.store.leases.free(tokens))
        except BaseException as error:
            # For the next try, the drain's last one included; after that they expire and the reaper removes them.
            holdings.doubt(tokens)
            if not isinstance(error, Exception):
                raise
            self._place.trouble.note(PURPOSE, error)

    async def _back_off(self, batch: Sequence[Pending], error: Exception) -> None:
        """Keep what was not written and wait before the next try, longer each time; that one is half as large."""
        self._place.trouble.note(PURPOSE, error)
        self._most = max(1, len(batch) // 2)
        left = [each for each in batch if not each.is_settled]
        for each in left:
            each.unsure = True
        if isinstance(error, DatabaseBusy) and len(left) == 1 and left[0].size > LARGE_ALONE:
            # So large that it may never get through in time; the others must not wait for it.
            self._pass_on(left.pop())
        self._pending[:0] = left
        self._look_at_the_oldest()
        clock = self._place.clock
        self._delay = min(RETRY_MAX_S, max(RETRY_MIN_S, self._delay * 2))
        await clock.sleep(self._delay * (0.5 + clock.random() / 2))

    def _pass_on(self, pending: Pending) -> None:
        self._hand_on(msgspec.structs.replace(pending))
        pending.is_settled = True
