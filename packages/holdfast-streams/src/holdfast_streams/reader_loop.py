"""The loop of a process that reads the log: it keeps its share of the lines leased, and reads each in its own task.

hold    `_keep_lines` renews leases, claims what is free, and gives back what is too much.
wake    `_watch_news` asks which of the lines have something new, after a hint or once a second.
read    A `_LineTask` reads blocks of its line, dense and in order, and hands them to the reader's `BlockDelivery`.
die     A line that processes ended with is read one event at a time. Each try is counted before it, so that an event
        that ends processes is parked as well.
drain   Once stopped, no block is begun; those under way end, and the lines are given back for others to take at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from typing import Any

from holdfast.core.errors import ConnectionClosed, DatabaseBusy, DatabaseUnreachable, HoldfastError
from holdfast.core.events import EventSpec
from holdfast.core.instants import Instant
from holdfast.storage.database import Database
from holdfast.worker.clock import Clock
from holdfast_streams.delivery import DIED, BlockDelivery, RetryLater, check_lease
from holdfast_streams.errors import LineLost
from holdfast_streams.events import STREAM_LAG, STREAM_REFUSED
from holdfast_streams.line_reader import HeldLine, LineReader
from holdfast_streams.line_shares import LineBeat, Sharing, beat, read_sharing
from holdfast_streams.reader_store import (
    LINES,
    READERS,
    SUSPECTED_AFTER,
    ClaimedLine,
    LineToken,
    ReadBlock,
)

log = logging.getLogger("holdfast.streams")

Emit = Callable[..., None]
"""Emits an event of the catalogue, given its spec and fields."""

POLL_S = 1.0
"""Without hints, new events are found after this long at most."""

PAUSE_S = 0.005
"""Between two looks for news, however many hints come."""

TAKEN_SOON_MS = 250
"""How long a line that another process should take is left alone."""

ERROR_S = 1.0
TRIES_A_LEASE = 15
"""So often at least leases are tried to be renewed before they end: one beat that fails must not cost the lines."""

_DATABASE = (DatabaseUnreachable, DatabaseBusy, ConnectionClosed)


class ReaderLoop:
    """Reads for the readers of one process until stopped. It is run once."""

    def __init__(
        self,
        database: Database,
        deliveries: Mapping[str, BlockDelivery],
        worker: str,
        lease_ms: int,
        handlers: int,
        clock: Clock,
        emit: Callable[[EventSpec, dict[str, Any]], None],
        now: Callable[[], Instant | None] = lambda: None,
    ) -> None:
        self._database = database
        self._deliveries = deliveries
        self._worker = worker
        self._lease_ms = lease_ms
        self._clock = clock
        self._emit = emit
        self._now = now
        self._link = database.link("streams")
        self._reading = database.link("streams read")
        self._line_reader = LineReader(self._reading, clock)
        self._handlers = asyncio.Semaphore(handlers)
        self._suspects = asyncio.Lock()
        self._tasks: dict[tuple[str, int], _LineTask] = {}
        # After an error, tasks end without giving their lines back.
        self._unreleased: set[LineToken] = set()
        self._news = asyncio.Event()
        self._beat = asyncio.Event()
        self._stopping = asyncio.Event()
        self._has_lines = False
        self._sharing: Sharing | None = None
        self._may_have_changed = False
        self.events = 0

    def wake(self) -> None:
        """Look for new events now."""
        self._news.set()

    def look(self) -> None:
        """Look now whether lines were paused, moved or left by others."""
        self._beat.set()
        self._news.set()

    def peek(self) -> None:
        """Look for new events, and beat if others have changed something: on a file, our own beat is a hint too."""
        self._may_have_changed = True
        self._news.set()

    @property
    def is_done(self) -> bool:
        """Whether every line of this process was read to its end."""
        return self._has_lines and all(each.is_idle for each in self._tasks.values())

    def stop(self) -> None:
        """Begin no further block."""
        self._stopping.set()
        self.look()
        for each in self._tasks.values():
            each.end()

    async def run(self) -> None:
        """Read until stopped."""
        try:
            await self._register()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_lines(group), name="holdfast stream lines")
                group.create_task(self._watch_news(), name="holdfast stream news")
        finally:
            await self._close()

    async def _register(self) -> None:
        """Register the readers, once the database answers."""
        while not self._stopping.is_set():
            try:
                for each in self._deliveries.values():
                    since = await self._link.run_atomic(each.begins_at())
                    await self._link.run_atomic(
                        READERS.register(
                            each.name, each.kind, each.patterns, since, self._now(), each.target
                        )
                    )
            except _DATABASE as error:
                await self._rest(error)
            else:
                return

    async def _rest(self, error: HoldfastError, wait_s: float = ERROR_S) -> None:
        log.warning("the event log cannot be read for now: %s", error)
        await self._clock.wait(self._stopping, wait_s * (0.5 + self._clock.random()))

    # ---- Lines

    async def _keep_lines(self, group: asyncio.TaskGroup) -> None:
        while not self._stopping.is_set():
            self._beat.clear()
            pause_ms = self._lease_ms // 3
            sent_at = self._clock.monotonic()
            try:
                found = await self._link.run_atomic(self._beat_op())
            except _DATABASE as error:
                await self._rest(error, min(ERROR_S, self._lease_ms / 1000 / TRIES_A_LEASE))
                continue
            self._apply(found, group)
            for task in self._tasks.values():
                task.held.until = sent_at + self._lease_ms / 1000
            self._has_lines, self._sharing = True, found.sharing
            if found.next_expiry_ms is not None:
                # One that has ended and was not ours to take is another's share: it is looked at again, not at once.
                due_ms = found.next_expiry_ms + 5 if found.next_expiry_ms > 0 else TAKEN_SOON_MS
                pause_ms = min(pause_ms, due_ms)
            await self._clock.wait(self._beat, pause_ms / 1000)

    def _beat_op(self) -> Any:
        held = {key: each.held.token for key, each in self._tasks.items()}
        names = list(self._deliveries)
        store, now = self._database.store, self._now()
        return beat(store, self._worker, names, held, self._lease_ms, now)

    def _apply(self, found: LineBeat, group: asyncio.TaskGroup) -> None:
        for key, task in list(self._tasks.items()):
            if key not in found.renewed:
                task.end()
        for each in found.claimed:
            self._begin(each, group)
        for reader, count in found.surplus.items():
            mine = [task for (name, _), task in self._tasks.items() if name == reader]
            for task in mine[-count:]:
                task.end()
        for line in found.lines:
            if (line.reader, line.line) in self._tasks:
                fields = {"reader": line.reader, "line": line.line, "lag": line.lag}
                self._emit(STREAM_LAG, {**fields, "lag_ms": line.lag_ms(found.now)})

    def _begin(self, claimed: ClaimedLine, group: asyncio.TaskGroup) -> None:
        token = LineToken(claimed.reader, claimed.line, claimed.token)
        delivery = self._deliveries[claimed.reader]
        held = HeldLine(token, claimed.position, claimed.fence, claimed.failures)
        if claimed.failures >= SUSPECTED_AFTER:
            held.careful = delivery.batch
        key = claimed.reader, claimed.line
        task = _LineTask(self, held, delivery, claimed.wait_ms)
        self._tasks[key] = task
        self._unreleased.add(token)
        if self._stopping.is_set():
            # It was claimed while the process was asked to stop, and is given back.
            task.end()
        running = group.create_task(task.run(), name=f"holdfast stream {held.mark}")
        running.add_done_callback(lambda _: self._forget(key, task))

    def _forget(self, key: tuple[str, int], task: _LineTask) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        # What it gave back may be another's, and what it lost may be free again.
        self._beat.set()

    async def _watch_news(self) -> None:
        while not self._stopping.is_set():
            await self._clock.wait(self._news, POLL_S)
            self._news.clear()
            if self._stopping.is_set():
                return
            with suppress(*_DATABASE):
                for key in await self._link.run(LINES.news(self._worker)):
                    if key in self._tasks:
                        self._tasks[key].wake()
                if self._may_have_changed:
                    self._may_have_changed = False
                    if await self._link.run(read_sharing(self._now())) != self._sharing:
                        self._beat.set()
            await self._clock.wait(self._stopping, PAUSE_S)

    async def _close(self) -> None:
        try:
            with suppress(*_DATABASE):
                if self._unreleased:
                    await self._link.run(LINES.release(list(self._unreleased)))
                await self._link.run(LINES.leave(self._worker))
        finally:
            await self._link.close()
            await self._reading.close()

    # ---- What the tasks of lines need

    async def read_line(self, task: _LineTask) -> bool:
        """Read and deliver one block; return whether there may be more. Raises: what the delivery raises."""
        held, delivery = task.held, task.delivery
        await delivery.prepare(held)
        is_suspect = held.careful > 0
        block = await self._line_reader.read(held, 1 if is_suspect else delivery.batch)
        if block is None or (block.upto is None and not block.has_due):
            return False
        # Another line's block is asked for before this one keeps the loop busy.
        await asyncio.sleep(0)
        # Of those that processes may have died of, one is taken at a time, so that it is known which one it was.
        # A broker that is slow keeps no consumer from its turn.
        async with (
            self._suspects if is_suspect else nullcontext(),
            self._handlers if delivery.kind == "consumer" else nullcontext(),
        ):
            if held.ended.is_set():
                return False
            check_lease(held, self._clock)
            before = held.position
            if block.has_due:
                await delivery.take_due(held)
                # Keys that were held may be free now, so the block is read again.
                return True
            if is_suspect and block.text is not None:
                await self._deliver_suspect(held, delivery, block)
            else:
                await delivery.deliver(held, block)
            self.events += max(0, held.position - before)
        return True

    async def _deliver_suspect(
        self, held: HeldLine, delivery: BlockDelivery, block: ReadBlock
    ) -> None:
        """Count a try of an event that processes may have died of, before it; park it after too many."""
        tries, max_deaths = held.failures + 1, delivery.max_deaths
        if max_deaths is not None and tries > SUSPECTED_AFTER + max_deaths:
            await delivery.give_up(held, block, f"processes ended {tries - 1} times with it")
            return
        if not await self._link.run(LINES.fail(held.token, tries, DIED, now=self._now())):
            raise LineLost(f"{held.mark} is read by another process")
        held.failures = tries
        await delivery.deliver(held, block)

    async def check_hold(self, held: HeldLine, error: Exception) -> None:
        """After an error, find out whether the line is still ours and where it is; if not, it ends."""
        self._line_reader.forget()
        try:
            position = await self._link.run(LINES.position(held.token))
        except _DATABASE as unreachable:
            await self._rest(unreachable)
            return
        if position is None:
            self._emit(STREAM_REFUSED, {"reader": held.token.reader, "line": held.line})
            held.ended.set()
            return
        held.position = position
        if not isinstance(error, LineLost):
            log.warning("line %s is read again: %s", held.mark, error)
            await self._clock.wait(held.ended, ERROR_S * (0.5 + self._clock.random()))

    async def wait(self, event: asyncio.Event, seconds: float | None = None) -> None:
        """Wait for an event, at most so long."""
        await self._clock.wait(event, seconds)

    async def release(self, held: HeldLine) -> None:
        """Give a line back."""
        with suppress(*_DATABASE):
            await self._link.run(LINES.release([held.token]))
        self._unreleased.discard(held.token)


class _LineTask:
    """Reads one line for as long as this process holds it."""

    def __init__(
        self, loop: ReaderLoop, held: HeldLine, delivery: BlockDelivery, wait_ms: int | None
    ) -> None:
        self.held = held
        self.delivery = delivery
        self.is_idle = False
        self._loop = loop
        self._wait_s = (wait_ms or 0) / 1000
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """There is something to read."""
        self.is_idle = False
        self._woken.set()

    def end(self) -> None:
        """Begin no further block."""
        self.held.ended.set()
        self._woken.set()

    async def run(self) -> None:
        """Read until the line is given up, lost or the process stops."""
        held, loop = self.held, self._loop
        if self._wait_s:
            await loop.wait(held.ended, self._wait_s)
        while not held.ended.is_set():
            self._woken.clear()
            try:
                has_more = await loop.read_line(self)
            except RetryLater as later:
                await loop.wait(held.ended, later.seconds)
                continue
            except (LineLost, *_DATABASE) as error:
                await loop.check_hold(held, error)
                continue
            if not has_more and not held.ended.is_set():
                self.is_idle = not self._woken.is_set()
                await loop.wait(self._woken, self.delivery.look_s)
                self.is_idle = False
        await loop.release(held)
