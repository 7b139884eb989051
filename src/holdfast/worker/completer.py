"""Writes all outcomes, whatever their kind, in one fenced statement per flush."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from holdfast.core.errors import DatabaseBusy, DatabaseUnreachable
from holdfast.core.model import Finish, Finished, Held, Standing
from holdfast.ops.blockers import FanIn
from holdfast.ops.finish import finish_attempts
from holdfast.storage.database import Link
from holdfast.storage.port import Store
from holdfast.worker.attempt import Attempt
from holdfast.worker.clock import Clock
from holdfast.worker.holdings import Holdings
from holdfast.worker.judge import describe

LARGEST_FLUSH = 1_000
RETRY_MIN_S = 0.05
RETRY_MAX_S = 2.0

Accepted = Callable[[Attempt, Finish], None]
Refused = Callable[[Attempt, Finish, Standing], None]
Opened = Callable[[FanIn], None]


class Pending(msgspec.Struct):
    """An outcome that waits to be written."""

    attempt: Attempt
    finish: Finish


class Completer:
    """One loop that flushes what has gathered while the last flush was under way.

    A lone outcome is written at once; under load the flushes grow by themselves. What a flush does not hit is asked
    for: lost ones are refused, awaited ones go in a transaction with their fan-in, locked ones are tried again.
    """

    def __init__(
        self,
        link: Link,
        store: Store,
        holdings: Holdings,
        clock: Clock,
        accepted: Accepted,
        refused: Refused,
        opened: Opened,
        trouble: Callable[[str, BaseException | None], None],
    ) -> None:
        self._link = link
        self._store = store
        self._holdings = holdings
        self._clock = clock
        self._accepted = accepted
        self._refused = refused
        self._opened = opened
        self._trouble = trouble
        self._pending: list[Pending] = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._delay = 0.0

    def __len__(self) -> int:
        return len(self._pending)

    def submit(self, attempt: Attempt, finish: Finish) -> None:
        """Have an outcome written with the next flush."""
        self._pending.append(Pending(attempt, finish))
        self._idle.clear()
        self._wake.set()

    async def drained(self) -> None:
        """Wait until everything submitted has been written or refused."""
        await self._idle.wait()

    async def run(self) -> None:
        """Flush for ever; cancelled by the worker when all has drained."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                batch, self._pending = self._pending[:LARGEST_FLUSH], self._pending[LARGEST_FLUSH:]
                left = await self._flush(batch)
                self._pending.extend(left)
                if left:
                    await self._back_off()
                else:
                    self._delay = 0.0
            await self._free()
            if not self._pending:
                self._idle.set()

    async def _flush(self, batch: list[Pending]) -> list[Pending]:
        """Write a batch; return what has to be tried again."""
        finishes = [each.finish for each in batch]
        plain = [each for each in finishes if not each.next_blockers]
        freed = self._holdings.take_emptied()
        try:
            done = await self._link.run(self._store.jobs.finish(plain, freed)) if plain else []
        except (DatabaseUnreachable, DatabaseBusy) as error:
            self._trouble("complete", error)
            return batch
        except Exception as error:
            return await self._halve(batch, error)
        self._trouble("complete", None)
        missed = self._accept(batch, done)
        return await self._missed(missed) if missed else []

    def _accept(self, batch: Sequence[Pending], done: Sequence[Finished]) -> list[Pending]:
        hits = {each.id for each in done}
        if len(hits) == len(batch):
            for each in batch:
                self._end(each)
            return []
        missed = []
        for each in batch:
            if each.finish.id in hits:
                hits.discard(each.finish.id)
                self._end(each)
            else:
                missed.append(each)
        return missed

    def _end(self, each: Pending) -> None:
        self._holdings.drop(each.attempt)
        self._accepted(each.attempt, each.finish)

    async def _missed(self, missed: list[Pending]) -> list[Pending]:
        """Find out why a flush did not hit these, and act on it."""
        pairs = [Held(each.finish.id, each.finish.token) for each in missed]
        try:
            stands = await self._link.run(self._store.jobs.stand(pairs))
            standing = {(each.id, each.token): each.standing for each in stands}
            held = []
            for each in missed:
                stand = standing[each.finish.id, each.finish.token]
                if stand == "held":
                    held.append(each)
                elif stand == "done":
                    self._end(each)
                else:
                    self._holdings.drop(each.attempt)
                    self._refused(each.attempt, each.finish, stand)
            return await self._awaited(held) if held else []
        except (DatabaseUnreachable, DatabaseBusy) as error:
            self._trouble("complete", error)
            return missed

    async def _awaited(self, held: list[Pending]) -> list[Pending]:
        """End jobs that others wait for, one transaction each; rows locked by somebody remain for later."""
        left = []
        for each in held:
            op = finish_attempts(self._store, [each.finish])
            report = await self._link.run_atomic(op)
            if not report.accepted:
                left.append(each)
                continue
            self._end(each)
            self._opened(report.fan_in)
        return left

    async def _halve(self, batch: list[Pending], error: Exception) -> list[Pending]:
        """Find the one outcome that cannot be written, and record that instead."""
        if len(batch) > 1:
            middle = len(batch) // 2
            return await self._flush(batch[:middle]) + await self._flush(batch[middle:])
        only = batch[0]
        text, mark = describe(error)
        if only.finish.fingerprint == mark:
            # Even the report of the error cannot be written: leave the job to its lease.
            self._holdings.drop(only.attempt)
            self._refused(only.attempt, only.finish, "held")
            return []
        only.finish = Finish(
            id=only.finish.id,
            token=only.finish.token,
            kind="fail",
            worker=only.finish.worker,
            chain_id=only.finish.chain_id,
            started_at=only.finish.started_at,
            error=text,
            fingerprint=mark,
        )
        return [only]

    async def _free(self) -> None:
        """Remove leases that hold nothing, when there is nothing else to write."""
        tokens = self._holdings.take_emptied()
        if not tokens:
            return
        try:
            await self._link.run(self._store.leases.free(tokens))
        except (DatabaseUnreachable, DatabaseBusy) as error:
            # An empty lease expires by itself and the reaper removes it.
            self._trouble("complete", error)

    async def _back_off(self) -> None:
        self._delay = min(RETRY_MAX_S, max(RETRY_MIN_S, self._delay * 2))
        await self._clock.sleep(self._delay * (0.5 + self._clock.random() / 2))
