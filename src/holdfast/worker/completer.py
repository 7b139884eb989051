"""Writes all outcomes, whatever their kind, in one fenced statement per flush."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

import msgspec

from holdfast.core.errors import DatabaseBusy
from holdfast.core.model import Finish, Finished, Held
from holdfast.storage.database import Link
from holdfast.worker.attempt import Attempt
from holdfast.worker.outcomes import (
    LARGE_BYTES,
    Outcomes,
    Pending,
    in_portions,
    is_about_the_data,
    replacement,
)
from holdfast.worker.workplace import Workplace

PURPOSE = "complete"
LARGEST_FLUSH = 1_000
MOST_UNRECORDED = 1_000
"""So many outcomes that are not recorded, or one for so long, and nothing new begins: it would be run for nothing if
this process died."""
LATE_S = 1.5
LARGE_ALONE = LARGE_BYTES // 64
RETRY_MIN_S = 0.05
RETRY_MAX_S = 2.0


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
