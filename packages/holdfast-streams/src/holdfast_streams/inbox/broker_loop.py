"""Reads an inbox's broker in one process: fetch, take in one transaction, acknowledge after its commit.

A batch that fails is taken one by one, so that only what fails alone is delayed: it is delivered again with backoff,
and parked when it was tried often enough. What cannot be read is parked at once. While the database is away, what was
fetched is kept; while the broker is away, it is connected to again with backoff.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from holdfast.core.errors import HoldfastError, words_of
from holdfast.core.instants import Instant
from holdfast.core.redaction import clean_error
from holdfast.storage.database import Database
from holdfast.storage.store.params import resolve_now
from holdfast.worker.clock import Clock
from holdfast_streams.consumer import HandlerFailed
from holdfast_streams.errors import BrokerAway
from holdfast_streams.inbox.broker_presence import BrokerPresence
from holdfast_streams.inbox.broker_source import BrokerDelivery, BrokerSource
from holdfast_streams.inbox.declaration import Inbox
from holdfast_streams.inbox.inbox_events import (
    INBOX_DUPLICATE,
    INBOX_FAILED,
    INBOX_PARKED,
    INBOX_RECEIVED,
)
from holdfast_streams.inbox.intake import DATABASE_ERRORS, Intake
from holdfast_streams.inbox.message import Message, RawMessage, check_id

log = logging.getLogger("holdfast.inbox")

FETCH_S, TICK_FETCH_S = 1.0, 0.3
"""How long a fetch waits for messages, in a worker and in a tick."""

SUSPECTED_AFTER = 3
"""From this delivery on, a message is taken alone: a process may have died of it, and with it a whole batch."""

MAX_DELIVERIES = 20
"""A message that was delivered so often without an answer is parked untried, where `retry=` sets no number of tries."""

ERROR_S = 1.0


class BrokerLoop:
    """Reads one inbox until stopped, or in a tick until there is nothing more. It is run once."""

    beats_itself = False

    def __init__(
        self,
        intake: Intake,
        source: BrokerSource,
        database: Database,
        clock: Clock,
        ack_wait_s: float,
        stopping: asyncio.Event,
        is_tick: bool = False,
    ) -> None:
        self._intake = intake
        self._inbox = intake.inbox
        self._source = source
        self._database = database
        self._clock = clock
        self._keep_s = ack_wait_s / 3
        self._stopping = stopping
        self._is_tick = is_tick
        self._unsettled: dict[int, BrokerDelivery] = {}
        self._presence = BrokerPresence(intake, clock)
        self.changed = asyncio.Event()
        self.messages = 0

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
                self.changed.set()
                if self._is_tick:
                    return
                await self._clock.wait(self._stopping, delay_ms / 1000)
            finally:
                with suppress(BrokerAway, OSError):
                    await self._source.close()

    async def _read(self) -> None:
        wait_s = TICK_FETCH_S if self._is_tick else FETCH_S
        while not self._stopping.is_set():
            deliveries = await self._source.fetch(self._inbox.batch, wait_s)
            if self._presence.note_answer():
                self.changed.set()
            if deliveries:
                await self._settle(deliveries)
            elif self._is_tick:
                return

    async def _settle(self, deliveries: Sequence[BrokerDelivery]) -> None:
        """Take what was fetched, however long the database is away. Raises: BrokerAway."""
        self._unsettled = {id(each): each for each in deliveries}
        ended = asyncio.Event()
        keeping = asyncio.create_task(self._keep(ended), name=f"holdfast inbox {self._inbox.name}")
        try:
            while self._unsettled and not self._stopping.is_set():
                try:
                    await self._take_all(list(self._unsettled.values()))
                except DATABASE_ERRORS as error:
                    log.warning("the inbox %s waits for the database: %s", self._inbox.name, error)
                    delay_s = ERROR_S * (0.5 + self._clock.random())
                    await self._clock.wait(self._stopping, delay_s)
        finally:
            ended.set()
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def _keep(self, ended: asyncio.Event) -> None:
        # It is told as well as cancelled: clients may swallow that.
        while not await self._clock.wait(ended, self._keep_s):
            with suppress(BrokerAway):
                await self._source.keep(list(self._unsettled.values()))

    async def _take_all(self, deliveries: Sequence[BrokerDelivery]) -> None:
        now = await self._database.run_async(resolve_now(self._intake.now()))
        good: list[tuple[BrokerDelivery, Message[Any]]] = []
        for each in deliveries:
            read = self._read_one(each, now)
            if isinstance(read, Message):
                good.append((each, read))
            else:
                await self._park(each, read)
        highest = max((each.attempts for each, _ in good), default=0)
        if highest >= SUSPECTED_AFTER:
            # Forwards, then backwards: what is before and what is behind the one that ends processes are both taken
            # before it is parked. If there are several such, chance has to find what is between them.
            if highest > SUSPECTED_AFTER + 1:
                random.shuffle(good)
            elif highest > SUSPECTED_AFTER:
                good.reverse()
            for one in good:
                await self._take([one])
        elif good:
            await self._take(good)

    def _read_one(self, delivery: BrokerDelivery, now: Instant) -> Message[Any] | str:
        if delivery.attempts > max_deliveries(self._inbox):
            return f"it was delivered {delivery.attempts} times without an answer"
        return read_message(self._inbox, delivery.raw, now)

    async def _take(self, good: Sequence[tuple[BrokerDelivery, Message[Any]]]) -> None:
        """Take messages in one transaction, and then acknowledge them. Raises: BrokerAway, DatabaseError."""
        try:
            taken = await self._intake.take([message for _, message in good])
        except HandlerFailed as failure:
            if len(good) == 1:
                await self._fail(*good[0], str(failure))
                return
            for one in good:
                await self._take([one])
            return
        self.messages += taken
        if taken:
            self._intake.emit(INBOX_RECEIVED, messages=taken)
        if taken < len(good):
            self._intake.emit(INBOX_DUPLICATE, messages=len(good) - taken)
        await self._ack([each for each, _ in good])

    async def _fail(self, delivery: BrokerDelivery, message: Message[Any], error: str) -> None:
        max_attempts, attempts = self._inbox.retry.max_attempts, delivery.attempts
        if max_attempts is not None and attempts >= max_attempts:
            await self._park(delivery, error, message.id)
            return
        self._intake.emit(INBOX_FAILED, message_id=message.id, error=error)
        delay_ms = self._inbox.retry.delay_ms(attempts, self._clock.random())
        await self._source.retry_later(delivery, delay_ms / 1000)
        self._unsettled.pop(id(delivery), None)

    async def _park(self, delivery: BrokerDelivery, error: str, id: str | None = None) -> None:
        """Keep a message for an operator, and acknowledge it."""
        raw = delivery.raw
        own = RawMessage(raw.inbox, _storable(id or raw.id), raw.body, raw.headers, raw.subject)
        if await self._database.run_async(self._intake.park(own, error, delivery.attempts)):
            self._intake.emit(INBOX_PARKED, message_id=own.id, error=error)
        await self._ack([delivery])

    async def _ack(self, deliveries: Sequence[BrokerDelivery]) -> None:
        await self._source.ack(deliveries)
        for each in deliveries:
            self._unsettled.pop(id(each), None)


def max_deliveries(inbox: Inbox) -> int:
    """Return how often a message is begun before it is parked untried: four times as often as it may fail."""
    max_attempts = inbox.retry.max_attempts
    return MAX_DELIVERIES if max_attempts is None else 4 * max_attempts


def read_message(inbox: Inbox, raw: RawMessage, now: Instant) -> Message[Any] | str:
    """Return a message as the handler gets it, or why it cannot be."""
    try:
        own = raw.id if inbox.id is None else inbox.id(raw)
        named = RawMessage(raw.inbox, check_id(own), raw.body, raw.headers, raw.subject, now)
        return inbox.read(named, now)
    except HoldfastError as error:
        return f"{type(error).__name__}: {error.message}"
    except Exception as error:
        return clean_error(type(error).__name__, words_of(error))


def _storable(text: str) -> str:
    return text.replace("\0", "?")[:500]
