"""Reads the lines of an inbox that keeps the order of keys: one process a line, from where the database says.

hold    `_keep_lines` renews leases, claims what is free up to this process's share, and gives back what is too much.
read    A line's task fetches what follows its place, and takes it in one transaction that moves the place, under
        the token.
fail    A batch that fails is taken one by one. One that fails alone holds its line up while it is tried again, and is
        parked then; those of its key that come later are parked behind it, and the line goes on.
die     The broker counts no deliveries here. A line that processes died with is taken one by one, and each try is
        counted before it, so that a message that ends processes is parked as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from holdfast.core.records import Held
from holdfast.storage.database import Database
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op
from holdfast.storage.store.params import resolve_now
from holdfast.worker.clock import Clock
from holdfast_streams.consumer import HandlerFailed
from holdfast_streams.errors import BrokerAway, LineLost
from holdfast_streams.inbox.broker_loop import (
    ERROR_S,
    FETCH_S,
    SUSPECTED_AFTER,
    TICK_FETCH_S,
    max_deliveries,
    read_message,
)
from holdfast_streams.inbox.broker_presence import BrokerPresence
from holdfast_streams.inbox.broker_source import LinedSource, LineFeed, PlacedMessage
from holdfast_streams.inbox.inbox_events import (
    INBOX_DUPLICATE,
    INBOX_FAILED,
    INBOX_LINE_LOST,
    INBOX_PARKED,
    INBOX_RECEIVED,
)
from holdfast_streams.inbox.inbox_store import INBOXES, InboxLine
from holdfast_streams.inbox.intake import DATABASE_ERRORS, Intake
from holdfast_streams.inbox.message import Message, RawMessage
from holdfast_streams.line_shares import share_of

log = logging.getLogger("holdfast.inbox")


class _LeasedLine:
    """A line that this process holds."""

    def __init__(self, claimed: InboxLine) -> None:
        self.name = claimed.line
        self.token = claimed.token
        self.place = claimed.place
        # After deaths, so many messages are taken one by one: one of them may have ended those processes.
        self.careful = 0
        self.failures = 0
        self.is_idle = False
        # By our own clock, unless it is renewed.
        self.until = 0.0
        self.ended = asyncio.Event()


class OrderedLoop:
    """Reads one inbox until stopped, or in a tick until there is nothing more. It is run once."""

    beats_itself = True

    def __init__(
        self,
        intake: Intake,
        source: LinedSource,
        database: Database,
        clock: Clock,
        worker: str,
        lease_ms: int,
        stopping: asyncio.Event,
        is_tick: bool = False,
    ) -> None:
        self._intake = intake
        self._inbox = intake.inbox
        self._source = source
        self._database = database
        self._clock = clock
        self._worker = worker
        self._lease_ms = lease_ms
        self._stopping = stopping
        self._is_tick = is_tick
        self._held: dict[str, _LeasedLine] = {}
        self._beat = asyncio.Event()
        self._has_lines = False
        self._broken: BrokerAway | None = None
        self._presence = BrokerPresence(intake, clock)
        self.changed = asyncio.Event()
        self.messages = 0

    # ---- The broker

    @property
    def error(self) -> str | None:
        """Why the broker cannot be read, while it cannot."""
        return self._presence.error

    async def run(self) -> None:
        """Read until stopped."""
        while not self._stopping.is_set():
            try:
                await self._source.open()
                await self._read()
                return
            except BrokerAway as error:
                delay_ms = self._presence.note_away(error)
            finally:
                await self._leave_lines()
                with suppress(BrokerAway, OSError):
                    await self._source.close()
            if self._is_tick:
                return
            with suppress(*DATABASE_ERRORS):
                await self._database.run_async(self._note_member())
            await self._clock.wait(self._stopping, delay_ms / 1000)

    async def _read(self) -> None:
        """Read until stopped. Raises: BrokerAway.

        A line that finds the broker away ends all of them after what they are doing. Nothing is cancelled: clients may
        swallow that, and go on.
        """
        self._broken = None
        async with asyncio.TaskGroup() as group:
            ending = group.create_task(self._end(), name=f"holdfast inbox {self._inbox.name} end")
            await self._keep_lines(group)
            ending.cancel()
        if self._broken is not None:
            raise self._broken

    async def _end(self) -> None:
        await self._stopping.wait()
        self._beat.set()
        for each in self._held.values():
            each.ended.set()

    async def _leave_lines(self) -> None:
        tokens = {each.name: each.token for each in self._held.values()}
        self._held.clear()
        if tokens:
            with suppress(*DATABASE_ERRORS):
                await self._database.run_async(INBOXES.release_lines(self._inbox.name, tokens))

    # ---- Lines

    async def _keep_lines(self, group: asyncio.TaskGroup) -> None:
        while not self._stopping.is_set() and self._broken is None:
            self._beat.clear()
            pause_s = self._lease_ms / 3000
            sent_at = self._clock.monotonic()
            try:
                renewed, claimed, surplus = await self._database.run_async(self._beat_lines())
            except DATABASE_ERRORS as error:
                log.warning("the inbox %s waits for the database: %s", self._inbox.name, error)
                pause_s = ERROR_S * (0.5 + self._clock.random())
            else:
                kept = [name for name in self._held if name in renewed]
                for name in self._held.keys() - kept[: len(kept) - surplus]:
                    self._held[name].ended.set()
                for each in claimed:
                    self._begin(each, group)
                for line in self._held.values():
                    line.until = sent_at + self._lease_ms / 1000
                self._has_lines = True
                self._leave_to_others()
            if self._is_tick:
                if self._has_lines and all(each.is_idle for each in self._held.values()):
                    break
                pause_s = min(pause_s, TICK_FETCH_S)
            await self._clock.wait(self._beat, pause_s)
        for line in self._held.values():
            line.ended.set()

    def _leave_to_others(self) -> None:
        """Without lines, whether the broker has the stream is for those to find who hold them."""
        if not self._held and self._presence.note_answer():
            self._beat.set()

    def _note_member(self) -> Op[None]:
        name, now = self._inbox.name, self._intake.now()
        return INBOXES.beat(name, self._worker, self._lease_ms, self.error, now)

    def _beat_lines(self) -> Op[tuple[set[str], list[InboxLine], int]]:
        """Renew what this process holds, and claim what is free up to its share; say how many are too many."""
        name, now, lines = self._inbox.name, self._intake.now(), self._source.lines
        yield from self._note_member()
        yield from INBOXES.begin_lines(name, lines)
        renewed: set[str] = set()
        if self._held:
            tokens = {each.name: each.token for each in self._held.values()}
            renewed = yield from INBOXES.renew_lines(name, tokens, self._lease_ms, now)
        members = yield from INBOXES.members(name, now)
        room = share_of(self._worker, members, len(lines)) - len(renewed)
        if room <= 0:
            return renewed, [], -room
        claimed = yield from INBOXES.claim_lines(
            name, lines, self._worker, new_id(), room, self._lease_ms, now
        )
        lost = [self._mark(each.line, each.old_token) for each in claimed if each.old_token]
        if lost:
            yield from self._database.store.leases.evict(lost)
        return renewed, claimed, 0

    def _mark(self, line: str, token: str) -> Held:
        return Held(f"inbox {self._inbox.name}/{line}", token)

    def _begin(self, claimed: InboxLine, group: asyncio.TaskGroup) -> None:
        line = _LeasedLine(claimed)
        if claimed.deaths >= SUSPECTED_AFTER:
            line.careful = self._inbox.batch
        self._held[line.name] = line
        task = group.create_task(self._read_line(line), name=f"holdfast inbox {line.name}")
        task.add_done_callback(lambda _: self._forget(line))

    def _forget(self, line: _LeasedLine) -> None:
        if self._held.get(line.name) is line and line.ended.is_set():
            del self._held[line.name]
            self._beat.set()

    async def _read_line(self, line: _LeasedLine) -> None:
        """Read a line until it is given up or lost, or the broker is away."""
        feed: LineFeed | None = None
        try:
            while not line.ended.is_set():
                try:
                    if feed is None:
                        feed = await self._source.begin(line.name, line.place)
                    if not await self._read_some(line, feed):
                        continue
                except LineLost:
                    self._intake.emit(INBOX_LINE_LOST, line=line.name)
                    line.ended.set()
                    return
                except BrokerAway as error:
                    self._broken = self._broken or error
                    feed = None
                    line.ended.set()
                    self._beat.set()
                    break
                except DATABASE_ERRORS as error:
                    log.warning("the inbox %s waits for the database: %s", self._inbox.name, error)
                    await self._clock.wait(line.ended, ERROR_S * (0.5 + self._clock.random()))
                    await self._find_place(line)
                # What was fetched and not taken is fetched again, from the place that was committed.
                if feed is not None:
                    await feed.close()
                    feed = None
        finally:
            if feed is not None:
                await feed.close()
        with suppress(*DATABASE_ERRORS):
            released = INBOXES.release_lines(self._inbox.name, {line.name: line.token})
            await self._database.run_async(released)

    async def _find_place(self, line: _LeasedLine) -> None:
        """After an error, read whether the line is still held, and what was committed."""
        with suppress(*DATABASE_ERRORS):
            found = await self._database.run_async(
                INBOXES.line_place(self._inbox.name, line.name, line.token)
            )
            if found:
                line.place = found[0]
            else:
                line.ended.set()

    async def _read_some(self, line: _LeasedLine, feed: LineFeed) -> bool:
        """Fetch and take some messages; say whether the rest of them has to be fetched again."""
        is_suspect = line.careful > 0
        wait_s = TICK_FETCH_S if self._is_tick else FETCH_S
        found = await feed.fetch(1 if is_suspect else self._inbox.batch, wait_s)
        if self._presence.note_answer():
            self._beat.set()
        line.is_idle = not found
        if not found or line.ended.is_set():
            return bool(found)
        if is_suspect and await self._park_suspect(line, found[0]):
            return False
        return not await self._take(line, found)

    # ---- Messages

    async def _park_suspect(self, line: _LeasedLine, placed: PlacedMessage) -> bool:
        """Count a try of a message that processes may have died of; park it after too many. Raises: LineLost."""
        tries = await self._database.run_async(
            INBOXES.try_line(self._inbox.name, line.name, line.token)
        )
        if tries is None:
            raise LineLost(f"{line.name} is read by another process")
        if tries <= max_deliveries(self._inbox):
            return False
        await self._move_past(line, placed, f"processes ended {tries - 1} times while it was taken")
        return True

    async def _take(self, line: _LeasedLine, found: Sequence[PlacedMessage]) -> bool:
        """Take messages in order; say whether all of them were. Raises: LineLost, DatabaseError."""
        try:
            await self._take_together(line, found)
            return True
        except HandlerFailed as failure:
            if len(found) > 1:
                for one in found:
                    if not await self._take(line, [one]):
                        return False
                return True
            return await self._fail(line, found[0], str(failure))

    async def _take_together(self, line: _LeasedLine, found: Sequence[PlacedMessage]) -> None:
        """Take messages in one transaction that moves the line. Raises: HandlerFailed, LineLost, DatabaseError."""
        good, aside = await self._sort(found)

        def last() -> Op[None]:
            for each, error in aside:
                yield from self._intake.park(_storable(each.raw), error, 1, each.key)
            yield from self._move(line, found[-1].place)

        if self._clock.monotonic() >= line.until:
            raise LineLost(f"{line.name} was not renewed in time, so another process may read it")
        if good:
            taken = await self._intake.take(good, last, self._mark(line.name, line.token))
        else:
            taken = 0
            await self._database.run_async(last())
        self._note_move(line, found[-1].place)
        self.messages += taken
        if taken:
            self._intake.emit(INBOX_RECEIVED, messages=taken)
        if taken < len(good):
            self._intake.emit(INBOX_DUPLICATE, messages=len(good) - taken)
        for each, error in aside:
            if error is not None:
                self._intake.emit(INBOX_PARKED, message_id=each.raw.id, error=error)

    async def _sort(
        self, found: Sequence[PlacedMessage]
    ) -> tuple[list[Message[Any]], list[tuple[PlacedMessage, str | None]]]:
        """Return what the handler gets, and what is parked: with its error, or behind one of its key."""
        now = await self._database.run_async(resolve_now(self._intake.now()))
        parked = await self._database.run_async(INBOXES.parked_keys(self._inbox.name))
        good: list[Message[Any]] = []
        aside: list[tuple[PlacedMessage, str | None]] = []
        for each in found:
            if each.key in parked:
                aside.append((each, None))
                continue
            read = read_message(self._inbox, each.raw, now)
            if isinstance(read, Message):
                good.append(read)
                continue
            aside.append((each, read))
            if each.key is not None:
                parked.add(each.key)
        return good, aside

    def _move(self, line: _LeasedLine, end: str) -> Op[None]:
        start, name = line.place, self._inbox.name
        if not (yield from INBOXES.move_line(name, line.name, line.token, start, end)):
            raise LineLost(f"{line.name} is read by another process")

    def _note_move(self, line: _LeasedLine, end: str) -> None:
        line.place, line.failures, line.careful = end, 0, max(0, line.careful - 1)

    async def _fail(self, line: _LeasedLine, placed: PlacedMessage, error: str) -> bool:
        """Wait until a message is tried again, or park it; say whether the line has passed it."""
        line.failures += 1
        max_attempts = self._inbox.retry.max_attempts
        if max_attempts is not None and line.failures >= max_attempts:
            await self._move_past(line, placed, error)
            return True
        self._intake.emit(INBOX_FAILED, message_id=placed.raw.id, error=error)
        delay_ms = self._inbox.retry.delay_ms(line.failures, self._clock.random())
        await self._clock.wait(line.ended, delay_ms / 1000)
        return False

    async def _move_past(self, line: _LeasedLine, placed: PlacedMessage, error: str) -> None:
        """Park a message, and go on behind it. Raises: LineLost."""
        attempts = max(1, line.failures)

        def park() -> Op[None]:
            yield from self._intake.park(_storable(placed.raw), error, attempts, placed.key)
            yield from self._move(line, placed.place)

        await self._database.run_async(park())
        self._note_move(line, placed.place)
        self._intake.emit(INBOX_PARKED, message_id=placed.raw.id, error=error)


def _storable(raw: RawMessage) -> RawMessage:
    id = raw.id.replace("\0", "?")[:500]
    return RawMessage(raw.inbox, id, raw.body, raw.headers, raw.subject)
