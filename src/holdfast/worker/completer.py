"""Writes all outcomes, whatever their kind, in one fenced statement per flush."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from holdfast.core.model import Finish, Finished, Held
from holdfast.storage.database import Link
from holdfast.worker.attempt import Attempt
from holdfast.worker.outcomes import Outcomes, Pending, is_about_the_data, replacement
from holdfast.worker.workplace import Workplace

PURPOSE = "complete"
LARGEST_FLUSH = 1_000
RETRY_MIN_S = 0.05
RETRY_MAX_S = 2.0


class Completer:
    """One loop that flushes what has gathered while the last flush was under way.

    A lone outcome is written at once; under load the flushes grow by themselves. What a flush does not hit is asked
    for: lost ones are refused; awaited ones and those locked by somebody's transaction go to `hand_on`, which writes
    them one by one, so that they delay nobody else.
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

    def submit(self, attempt: Attempt, finish: Finish) -> None:
        """Have an outcome written with the next flush."""
        pending = self._outcomes.wait_for(attempt, finish)
        if finish.next_blockers:
            self._hand_on(pending)
            return
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
                    self._delay = 0.0
            await self.free()

    def _next_batch(self) -> list[Pending]:
        """Take what has gathered; two attempts of one job, an old and a new one, never share a flush."""
        gathered = self._pending
        if len({each.finish.id for each in gathered}) == len(gathered) <= LARGEST_FLUSH:
            self._pending = []
            return gathered
        batch: dict[str, Pending] = {}
        left = []
        for each in self._pending:
            if len(batch) < LARGEST_FLUSH and each.finish.id not in batch:
                batch[each.finish.id] = each
            else:
                left.append(each)
        self._pending = left
        return list(batch.values())

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
                self._hand_on(msgspec.structs.replace(each))
                each.is_settled = True
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
        """Keep what was not written and wait before the next try, longer each time."""
        self._place.trouble.note(PURPOSE, error)
        left = [each for each in batch if not each.is_settled]
        for each in left:
            each.unsure = True
        self._pending[:0] = left
        clock = self._place.clock
        self._delay = min(RETRY_MAX_S, max(RETRY_MIN_S, self._delay * 2))
        await clock.sleep(self._delay * (0.5 + clock.random() / 2))
