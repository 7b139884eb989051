"""Takes messages: what the handler writes and the note that they were received are one transaction.

A message that was noted before is not handed to the handler again, whatever the sender or the broker repeats. Two
processes that get the same one at the same time: the second waits for the first one's transaction, and finds its note.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import ConnectionClosed, DatabaseBusy, DatabaseUnreachable
from holdfast.core.events import EventSpec
from holdfast.core.instants import Instant
from holdfast.core.records import Held
from holdfast.core.sealing import can_seal, open_input, seal_input
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import Op, run, run_async
from holdfast_streams.consumer import HandlerFailed, failing_for_handler, raise_failure
from holdfast_streams.delivery import DIED
from holdfast_streams.errors import LineLost
from holdfast_streams.inbox.declaration import Inbox
from holdfast_streams.inbox.inbox_store import INBOXES, DueMessage
from holdfast_streams.inbox.message import Message, RawMessage

if TYPE_CHECKING:
    from holdfast.app import Holdfast

DATABASE_ERRORS = (DatabaseUnreachable, DatabaseBusy, ConnectionClosed)

RunThread = Callable[..., Any]
"""Awaitable call of a function in a thread."""


class Intake:
    """Takes the messages of one inbox."""

    def __init__(self, app: Holdfast, inbox: Inbox, run_thread: RunThread) -> None:
        self._app = app
        self._database = app.database
        self._run_thread = run_thread
        self.inbox = inbox

    async def take(
        self,
        messages: Sequence[Message[Any]],
        last: Callable[[], Op[None]] | None = None,
        mark: Held | None = None,
    ) -> int:
        """Hand new messages to the handler and commit; return how many were new.

        last: what the transaction ends with. mark: by which the transaction can be ended from outside.

        Raises: HandlerFailed, and what `last` raises.
        """
        if self.inbox.is_async:
            return await self._take_async(messages, last, mark)
        taken: int = await self._run_thread(self._take_sync, messages, last, mark)
        return taken

    async def take_due(self) -> tuple[str, str | None] | None:
        """Take one parked message that is due; return its id and the error if it failed again, None without one.

        Raises: DatabaseError.
        """
        name, error = self.inbox.name, None
        due = await self._database.run_async(INBOXES.begin_due(name, DIED, self.now()))
        if due is None:
            return None
        try:
            if self.inbox.is_async:
                await self._take_due_async(due)
            else:
                await self._run_thread(self._take_due_sync, due)
        except HandlerFailed as failure:
            error = str(failure)
            await self._database.run_async(INBOXES.park_again(due.id, error, self.now()))
        except BaseException:
            # It was not the message's fault: it is due as before.
            with suppress(*DATABASE_ERRORS):
                await self._database.run_async(INBOXES.retry_parked(name, [due.id]))
            raise
        return due.message_id, error

    def park(
        self, raw: RawMessage, error: str | None, attempts: int, key: str | None = None
    ) -> Op[bool]:
        """Keep a message and note it as received, unless it was received before. In one transaction.

        Without an error it waits for those of its key that were parked before.
        """
        now = self._app.instant()
        if not (yield from self.remember([raw.id])):
            return False
        id, sealer = new_id(), self._app.registry.sealer
        body = f'"{base64.b64encode(raw.body).decode()}"'
        if can_seal(sealer):
            body = seal_input(sealer, body, id, self.inbox.name)
        yield from INBOXES.park(id, raw, body, error, attempts, now, key)
        return True

    def register(self) -> Op[None]:
        """Register the inbox, so that it is listed."""
        inbox = self.inbox
        yield from INBOXES.register(inbox.name, inbox.kind, inbox.source_text, self.now())

    def now(self) -> Instant | None:
        """The instant that replaces the clock of the database, in tests."""
        return self._app.instant()

    def emit(self, spec: EventSpec, **fields: Any) -> None:
        """Tell the application's observers."""
        self._app.tell([spec(inbox=self.inbox.name, **fields)])

    # ---- Sync handlers, in a thread

    def _take_sync(
        self,
        messages: Sequence[Message[Any]],
        last: Callable[[], Op[None]] | None,
        mark: Held | None,
    ) -> int:
        with failing_for_handler(), self._database.transaction(mark) as tx:
            new = run(self.remember([each.id for each in messages]), tx)
            fresh = _only_new(messages, new)
            if fresh:
                self._call_sync(fresh, tx)
            if last is not None:
                run(last(), tx)
        return len(fresh)

    def _take_due_sync(self, due: DueMessage) -> None:
        with failing_for_handler(), self._database.transaction() as tx:
            self._call_sync([self._message(due)], tx)
            _check_taken(run(INBOXES.unpark(due.id), tx))

    def _call_sync(self, messages: Sequence[Message[Any]], tx: Any) -> None:
        try:
            if self.inbox.is_single:
                for each in messages:
                    self.inbox.handler(each, tx)
            else:
                self.inbox.handler(messages, tx)
        except Exception as error:
            raise_failure(error)

    # ---- Async handlers

    async def _take_async(
        self,
        messages: Sequence[Message[Any]],
        last: Callable[[], Op[None]] | None,
        mark: Held | None,
    ) -> int:
        with failing_for_handler():
            async with self._database.transaction_async(mark) as tx:
                new = await run_async(self.remember([each.id for each in messages]), tx)
                fresh = _only_new(messages, new)
                if fresh:
                    await self._call_async(fresh, tx)
                if last is not None:
                    await run_async(last(), tx)
        return len(fresh)

    async def _take_due_async(self, due: DueMessage) -> None:
        with failing_for_handler():
            async with self._database.transaction_async() as tx:
                await self._call_async([self._message(due)], tx)
                _check_taken(await run_async(INBOXES.unpark(due.id), tx))

    async def _call_async(self, messages: Sequence[Message[Any]], tx: Any) -> None:
        try:
            if self.inbox.is_single:
                for each in messages:
                    await self.inbox.handler(each, tx)
            else:
                await self.inbox.handler(messages, tx)
        except Exception as error:
            raise_failure(error)

    def remember(self, ids: Sequence[str]) -> Op[set[str]]:
        """Note messages as received; return those that are new.

        Where lines keep how far they are, nothing has to be noted but ids that the application gives.
        """
        inbox = self.inbox
        if inbox.order is not None and inbox.id is None:
            return set(ids)
        return (yield from INBOXES.remember(inbox.name, ids, inbox.dedupe_ms, self._app.instant()))

    def _message(self, due: DueMessage) -> Message[Any]:
        """Read a parked message as it was received. Raises: HandlerFailed."""
        try:
            text = open_input(self._app.registry.sealer, due.body, due.id, self.inbox.name)
            body = base64.b64decode(text.strip('"'))
            raw = RawMessage(self.inbox.name, due.message_id, body, due.headers, due.subject)
            return self.inbox.read(raw, due.received_at)
        except Exception as error:
            raise_failure(error)


def _check_taken(is_done: bool) -> None:
    """Roll back what an operator has skipped meanwhile, or another process has taken. Raises: HandlerFailed."""
    if not is_done:
        raise HandlerFailed(LineLost("it was skipped, or taken by another process"))


def _only_new(messages: Sequence[Message[Any]], new: set[str]) -> list[Message[Any]]:
    """Return each message that is new once, in their order."""
    return list({each.id: each for each in reversed(messages) if each.id in new}.values())[::-1]
