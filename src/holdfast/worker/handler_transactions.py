"""A completion in a transaction that the handler holds itself: written there, believed when that has committed.

Prepare and complete: the two short transactions of a staged handler, in whichever colour it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any

from holdfast.client.adapters import adapter_of
from holdfast.client.adapters.base import AsyncAdapter, Need
from holdfast.commands.finish import FinishReport, finish_attempts
from holdfast.core.errors import (
    AlreadyCompleting,
    ConnectionClosed,
    DatabaseUnreachable,
    LeaseLost,
    TransactionAborted,
)
from holdfast.core.outcome import Continue
from holdfast.core.records import Finish, Held
from holdfast.storage.database import Database
from holdfast.storage.operation import Op, run, run_async
from holdfast.storage.store import Store
from holdfast.worker.attempt import Attempt, lost_because

Judge = Callable[[Attempt, Any], Op[Finish]]
"""Turns a handler's answer into the write that records it, once what it needs was looked up."""


class Handover:
    """One attempt's end, given to a transaction of the handler's own."""

    def __init__(self, database: Database, judge: Judge, attempt: Attempt) -> None:
        self._database = database
        self._judge = judge
        self._attempt = attempt
        self._made: tuple[Finish, FinishReport] | None = None

    def write(self, tx: Any, output: Any) -> Coroutine[Any, Any, None] | None:
        """Make the fenced write on the caller's transaction; awaited where that is async.

        Raises: LeaseLost, OutputInvalid, UnknownJobType, and the errors of connections.
        """
        op = self._finished(output)
        adapter = adapter_of(tx)
        need = Need(self._database.store, self._database.schema, True)
        if isinstance(adapter, AsyncAdapter):

            async def write() -> None:
                access = await adapter.open(need)
                self._made = await run_async(op, access.executor)

            return write()
        self._made = run(op, adapter.open(need).executor)
        return None

    def _finished(self, output: Any) -> Op[tuple[Finish, FinishReport]]:
        attempt = self._attempt
        finish = yield from self._judge(attempt, output)
        store, idle_ms = self._database.store, attempt.terms.lease_ms // 2
        return finish, (yield from finish_fenced(store, finish, idle_ms))

    async def outcome(self) -> tuple[Finish, FinishReport] | None:
        """What was written, if its transaction has committed; None when nothing was written or it was undone."""
        if self._made is None:
            return None
        finish, report = self._made
        pair = Held(finish.id, finish.token)
        (stand,) = await self._database.read_async(self._database.store.jobs.stand([pair]))
        return (finish, report) if stand.standing == "done" else None


def undone() -> TransactionAborted:
    """The error of a handler that returned although its completing transaction was rolled back."""
    return TransactionAborted(
        "the transaction in which the job was completed did not commit",
        help="let an exception leave the handler when the transaction is rolled back",
    )


# The server may be gone, or the reaper has ended the session because the job is lost: another session knows which.
_SESSION_ENDED = (ConnectionClosed, DatabaseUnreachable)


class Preparation:
    """A short transaction before the work; it commits at the end of its block, if the job is still held by then.

    Its first statement asks for the token, so that a lost job does not begin; its last one holds the row until the
    commit, so that nobody can take the job over in between.
    """

    def __init__(self, database: Database, held: Held, idle_ms: int) -> None:
        self._database = database
        self._held = held
        self._idle_ms = idle_ms
        self._is_begun = False
        self._tx: Any = None
        self._sync: AbstractContextManager[Any] | None = None
        self._async: AbstractAsyncContextManager[Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether its block has begun and not ended."""
        return self._async is not None or self._sync is not None

    def __enter__(self) -> Any:
        self._begin()
        opening = self._database.transaction(self._held)
        self._tx = opening.__enter__()
        try:
            run(self._first(), self._tx)
        except BaseException as error:
            _leave(opening, error)
            raise
        self._sync = opening
        return self._tx

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        assert self._sync is not None
        opened, self._sync = self._sync, None
        if error is not None:
            return opened.__exit__(kind, error, trace)
        try:
            run(self._last(), self._tx)
        except BaseException as refused:
            _leave(opened, refused)
            if isinstance(refused, _SESSION_ENDED):
                self._database.read(self._first())
            raise
        return opened.__exit__(None, None, None)

    async def __aenter__(self) -> Any:
        self._begin()
        opening = self._database.transaction_async(self._held)
        self._tx = await opening.__aenter__()
        try:
            await run_async(self._first(), self._tx)
        except BaseException as error:
            await _leave_async(opening, error)
            raise
        self._async = opening
        return self._tx

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        assert self._async is not None
        opened, self._async = self._async, None
        if error is not None:
            return await opened.__aexit__(kind, error, trace)
        try:
            await run_async(self._last(), self._tx)
        except BaseException as refused:
            await _leave_async(opened, refused)
            if isinstance(refused, _SESSION_ENDED):
                await self._database.read_async(self._first())
            raise
        return await opened.__aexit__(None, None, None)

    def _first(self) -> Op[None]:
        yield from _check_held(self._database.store, self._held, "the preparation was refused")

    def _last(self) -> Op[None]:
        """Prove the token and keep the row until the commit; waits, under the lock timeout, for who has locked it."""
        store = self._database.store
        yield from store.leases.guard(self._idle_ms)
        yield from store.jobs.lock([self._held.id])
        yield from self._first()

    def _begin(self) -> None:
        if self._is_begun:
            raise AlreadyCompleting("prepare() was entered twice")
        self._is_begun = True


class Completion:
    """The transaction that ends the attempt. Its block only opens it; the worker closes it, the fenced write last.

    An exception that leaves the block undoes it at once, whatever the handler makes of the exception.
    """

    def __init__(self, database: Database, held: Held, idle_ms: int) -> None:
        self._database = database
        self._held = held
        self._idle_ms = idle_ms
        self._is_begun = False
        self._sync: AbstractContextManager[Any] | None = None
        self._async: AbstractAsyncContextManager[Any] | None = None
        self.tx: Any = None

    @property
    def is_async(self) -> bool:
        """In which colour it is open."""
        return self._async is not None

    @property
    def is_open(self) -> bool:
        """Whether it is to be committed or undone."""
        return self._async is not None or self._sync is not None

    def continue_with(self, type: Any, input: Any = None, **options: Any) -> Continue:
        """Answer that the chain goes on: return this from the handler."""
        return Continue(type, input, **options)

    def __enter__(self) -> Completion:
        self._begin()
        opening = self._database.transaction(self._held)
        self.tx = opening.__enter__()
        self._sync = opening
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stay open: an exception after the block must still undo it."""
        if error is not None:
            self.undo(error)

    async def __aenter__(self) -> Completion:
        self._begin()
        opening = self._database.transaction_async(self._held)
        self.tx = await opening.__aenter__()
        self._async = opening
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stay open: an exception after the block must still undo it."""
        if error is not None:
            await self.undo_async(error)

    def _begin(self) -> None:
        if self._is_begun:
            raise AlreadyCompleting("complete() was entered twice")
        self._is_begun = True

    async def commit_async(self, finish: Finish) -> FinishReport:
        """Make the fenced write and commit. Raises: LeaseLost, with everything undone."""
        assert self._async is not None
        opened, self._async = self._async, None
        op = finish_fenced(self._database.store, finish, self._idle_ms)
        try:
            report = await run_async(op, self.tx)
        except BaseException as error:
            await _leave_async(opened, error)
            if isinstance(error, _SESSION_ENDED):
                await self._database.read_async(self._still_held())
            raise
        await opened.__aexit__(None, None, None)
        return report

    def commit(self, finish: Finish) -> FinishReport:
        """The same in the other colour."""
        assert self._sync is not None
        opened, self._sync = self._sync, None
        try:
            report = run(finish_fenced(self._database.store, finish, self._idle_ms), self.tx)
        except BaseException as error:
            _leave(opened, error)
            if isinstance(error, _SESSION_ENDED):
                self._database.read(self._still_held())
            raise
        opened.__exit__(None, None, None)
        return report

    def _still_held(self) -> Op[None]:
        yield from _check_held(self._database.store, self._held, "the completion was refused")

    async def undo_async(self, error: BaseException) -> None:
        """Roll back what the handler wrote in it."""
        opened, self._async = self._async, None
        if opened is not None:
            await _leave_async(opened, error)

    def undo(self, error: BaseException) -> None:
        """The same in the other colour."""
        opened, self._sync = self._sync, None
        if opened is not None:
            _leave(opened, error)


def _check_held(store: Store, held: Held, refusal: str) -> Op[None]:
    """Raises: LeaseLost."""
    (stand,) = yield from store.jobs.stand([held])
    if stand.standing != "held":
        reason = lost_because(stand) or "already_completed"
        raise LeaseLost(reason, refusal)


def finish_fenced(store: Store, finish: Finish, idle_ms: int) -> Op[FinishReport]:
    """End an attempt as the last statement of a transaction that others can see.

    Concurrency: waits, under the lock timeout, for somebody who has locked the row. Raises: LeaseLost, DatabaseBusy.
    """
    # From here to the commit the row is ours; a process that is stopped in between must not sit on it.
    yield from store.leases.guard(idle_ms)
    report = yield from finish_attempts(store, [finish])
    if report.accepted:
        return report
    pair = Held(finish.id, finish.token)
    (stand,) = yield from store.jobs.stand([pair])
    if stand.standing == "held":
        yield from store.jobs.lock([finish.id])
        report = yield from finish_attempts(store, [finish])
        if report.accepted:
            return report
        (stand,) = yield from store.jobs.stand([pair])
    reason = lost_because(stand) or "already_completed"
    raise LeaseLost(reason, "the completion was refused")


async def _leave_async(opened: AbstractAsyncContextManager[Any], error: BaseException) -> None:
    try:
        await opened.__aexit__(type(error), error, error.__traceback__)
    except BaseException as raised:
        if raised is not error and not isinstance(raised, Exception):
            raise


def _leave(opened: AbstractContextManager[Any], error: BaseException) -> None:
    try:
        opened.__exit__(type(error), error, error.__traceback__)
    except BaseException as raised:
        if raised is not error and not isinstance(raised, Exception):
            raise
