"""A handler's own transactions: prepare, complete, and completing in a transaction it holds itself."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any, TypeVar

from holdfast.client.adapters import adapter_of
from holdfast.client.adapters.base import AsyncAdapter, Need
from holdfast.commands.attempts import FinishReport, finish_attempts, read_lease_status
from holdfast.core.errors import AlreadyCompleting, ConnectionClosed, DatabaseUnreachable, LeaseLost
from holdfast.core.outcome import Continue
from holdfast.core.records import Finish, Held
from holdfast.storage.database import Database, Raised
from holdfast.storage.operation import Op, run, run_async
from holdfast.storage.store import Store
from holdfast.worker.attempt import Attempt, PrepareTx, lost_reason

T = TypeVar("T")

ResolveOutput = Callable[[Attempt, Any], Op[Finish]]
"""Turns a handler's output into the write that records it, after the lookups it needs."""

# The server may be gone, or the reaper has ended the session because the job is lost: another session knows which.
_SESSION_ENDED = (ConnectionClosed, DatabaseUnreachable)


class _HandlerTransaction:
    """A transaction that is entered once, `with` in a sync handler, `async with` in an async one."""

    _refusal = "the completion was rejected"

    def __init__(
        self,
        database: Database,
        held: Held,
        idle_ms: int,
        prepare_tx: PrepareTx | None = None,
        is_first: bool = False,
        own: Any = None,
    ) -> None:
        """`is_first` says that the handler has done nothing that would have to be done again.

        `own` begins and commits a transaction of the application's own, as a session's is.
        """
        self._database = database
        self._own = own
        self._held = held
        self._prepare_tx = prepare_tx
        self._idle_ms = idle_ms
        self._is_first = is_first
        self._is_begun = False
        self._sync: AbstractContextManager[Any] | None = None
        self._async: AbstractAsyncContextManager[Any] | None = None
        self.tx: Any = None

    @property
    def is_open(self) -> bool:
        """Whether it has begun and is neither committed nor rolled back."""
        return self._async is not None or self._sync is not None

    def _begin(self, method: str) -> None:
        if self._is_begun:
            raise AlreadyCompleting(f"{method}() was entered twice")
        self._is_begun = True

    def _open(self, method: str) -> None:
        self._begin(method)
        opening = self._own or self._database.transaction(self._held, self._is_first)
        self.tx = opening.__enter__()
        self._sync = opening
        if self._prepare_tx is not None:
            try:
                self._prepare_tx(self.tx)
            except BaseException as error:
                self.roll_back(error)
                raise

    async def _open_async(self, method: str) -> None:
        self._begin(method)
        opening = self._own or self._database.transaction_async(self._held, self._is_first)
        self.tx = await opening.__aenter__()
        self._async = opening
        if self._prepare_tx is not None:
            try:
                await self._prepare_tx(self.tx)
            except BaseException as error:
                await self.roll_back_async(error)
                raise

    def _commit(self, last: Op[T]) -> T:
        """Run the last statements and commit. Raises: LeaseLost, with everything rolled back."""
        assert self._sync is not None
        try:
            own = self._own is not None
            result = write_last(self._database, self.tx, last) if own else run(last, self.tx)
        except BaseException as error:
            self.roll_back(error)
            if isinstance(error, _SESSION_ENDED):
                self._database.read(self._check_held())
            raise
        opened, self._sync = self._sync, None
        opened.__exit__(None, None, None)
        return result

    async def _commit_async(self, last: Op[T]) -> T:
        assert self._async is not None
        try:
            own = self._own is not None
            result = await (
                write_last(self._database, self.tx, last) if own else run_async(last, self.tx)
            )
        except BaseException as error:
            await self.roll_back_async(error)
            if isinstance(error, _SESSION_ENDED):
                await self._database.read_async(self._check_held())
            raise
        opened, self._async = self._async, None
        await opened.__aexit__(None, None, None)
        return result

    def roll_back(self, error: BaseException) -> None:
        """Roll back what the handler wrote in it, if it is open."""
        opened, self._sync = self._sync, None
        if opened is not None:
            with _ignore_rollback_errors(error):
                opened.__exit__(type(error), error, error.__traceback__)

    async def roll_back_async(self, error: BaseException) -> None:
        """Async version of `roll_back`."""
        opened, self._async = self._async, None
        if opened is not None:
            with _ignore_rollback_errors(error):
                await opened.__aexit__(type(error), error, error.__traceback__)

    def _check_held(self) -> Op[None]:
        """Raises: LeaseLost."""
        (status,) = yield from self._database.store.jobs.lease_status([self._held])
        if status.lease != "held":
            raise LeaseLost(lost_reason(status) or "already_completed", self._refusal)


class Preparation(_HandlerTransaction):
    """A short transaction before the work; it commits at the end of its block, if the job is still held by then.

    Its first statement checks the token, so that a lost job does not begin; its last one locks the row until the
    commit, so that no other worker can take the job over in between.
    """

    _refusal = "the preparation was refused"

    def __enter__(self) -> Any:
        self._open("prepare")
        try:
            run(self._check_held(), self.tx)
        except BaseException as error:
            self.roll_back(error)
            raise
        return self.tx

    def __exit__(self, *raised: *Raised) -> bool | None:
        if raised[1] is None:
            return self._commit(self._lock_held())
        assert self._sync is not None
        opened, self._sync = self._sync, None
        return opened.__exit__(*raised)

    async def __aenter__(self) -> Any:
        await self._open_async("prepare")
        try:
            await run_async(self._check_held(), self.tx)
        except BaseException as error:
            await self.roll_back_async(error)
            raise
        return self.tx

    async def __aexit__(self, *raised: *Raised) -> bool | None:
        if raised[1] is None:
            return await self._commit_async(self._lock_held())
        assert self._async is not None
        opened, self._async = self._async, None
        return await opened.__aexit__(*raised)

    def _lock_held(self) -> Op[None]:
        """Check the token and lock the row until the commit; waits, under the lock timeout, for another's lock."""
        store = self._database.store
        yield from store.leases.guard(self._idle_ms)
        yield from store.jobs.lock([self._held.id])
        yield from self._check_held()


class AtomicStep(_HandlerTransaction):
    """The transaction of a step of a durable function; it commits at the end of its block, the step's record last."""

    _refusal = "the record was refused"
    _last: Op[object] | None = None

    def record(self, last: Op[object]) -> None:
        """Say what is to be written last; it refuses an attempt that has lost its job."""
        self._last = last

    def __enter__(self) -> Any:
        self._open("step")
        return self.tx

    def __exit__(self, *raised: *Raised) -> None:
        if raised[1] is None and self._last is not None:
            self._commit(self._guard(self._last))
        elif raised[1] is not None:
            self.roll_back(raised[1])

    async def __aenter__(self) -> Any:
        await self._open_async("step")
        return self.tx

    async def __aexit__(self, *raised: *Raised) -> None:
        if raised[1] is None and self._last is not None:
            await self._commit_async(self._guard(self._last))
        elif raised[1] is not None:
            await self.roll_back_async(raised[1])

    def _guard(self, last: Op[object]) -> Op[object]:
        yield from self._database.store.leases.guard(self._idle_ms)
        return (yield from last)


class Completion(_HandlerTransaction):
    """The transaction that ends the attempt. Its block only opens it; the worker closes it, the fenced write last.

    An exception that leaves the block rolls it back at once, whatever the handler makes of the exception.
    """

    @property
    def is_async(self) -> bool:
        """Whether it was opened with `async with`."""
        return self._async is not None

    def continue_with(self, type: Any, input: Any = None, **options: Any) -> Continue:
        """Continue the chain: return this from the handler."""
        return Continue(type, input, **options)

    def __enter__(self) -> Completion:
        self._open("complete")
        return self

    def __exit__(self, *raised: *Raised) -> None:
        """Stay open: an exception after the block must still roll it back."""
        if raised[1] is not None:
            self.roll_back(raised[1])

    async def __aenter__(self) -> Completion:
        await self._open_async("complete")
        return self

    async def __aexit__(self, *raised: *Raised) -> None:
        """Stay open: an exception after the block must still roll it back."""
        if raised[1] is not None:
            await self.roll_back_async(raised[1])

    def commit(self, finish: Finish) -> FinishReport:
        """Make the fenced write and commit. Raises: LeaseLost, with everything rolled back."""
        return self._commit(finish_fenced(self._database.store, finish, self._idle_ms))

    async def commit_async(self, finish: Finish) -> FinishReport:
        """Async version of `commit`."""
        return await self._commit_async(finish_fenced(self._database.store, finish, self._idle_ms))


class CompleteInTransaction:
    """The end of an attempt, written in a transaction the handler holds itself; it counts once that has committed."""

    def __init__(self, database: Database, resolve: ResolveOutput, attempt: Attempt) -> None:
        self._database = database
        self._resolve = resolve
        self._attempt = attempt
        self._written: tuple[Finish, FinishReport] | None = None

    def write(self, tx: Any, output: Any) -> Coroutine[Any, Any, None] | None:
        """Make the fenced write on the caller's transaction; awaited where that is async.

        Raises: LeaseLost, OutputInvalid, UnknownJobType, and the errors of connections.
        """
        return write_last(self._database, tx, self._finish(output))  # type: ignore[no-any-return]

    def _finish(self, output: Any) -> Op[None]:
        attempt = self._attempt
        finish = yield from self._resolve(attempt, output)
        store, idle_ms = self._database.store, attempt.policy.lease_ms // 2
        self._written = finish, (yield from finish_fenced(store, finish, idle_ms))

    async def committed_outcome(self) -> tuple[Finish, FinishReport] | None:
        """What was written, if its transaction has committed; None when nothing was written or it was rolled back."""
        if self._written is None:
            return None
        finish, report = self._written
        pair = Held(finish.id, finish.token)
        (status,) = await self._database.read_async(read_lease_status(self._database.store, [pair]))
        return (finish, report) if status.lease == "done" else None


def write_last(database: Database, tx: Any, op: Op[Any]) -> Any:
    """Run what comes last on a transaction of the caller's own; awaited where that is async."""
    adapter = adapter_of(tx)
    need = Need(database.store, database.schema, True, is_last=True)
    if not isinstance(adapter, AsyncAdapter):
        return run(op, adapter.open(need).executor)

    async def write() -> Any:
        return await run_async(op, (await adapter.open(need)).executor)

    return write()


def finish_fenced(store: Store, finish: Finish, idle_ms: int) -> Op[FinishReport]:
    """End an attempt as the last statement of a transaction that others can see.

    Concurrency: waits, under the lock timeout, for a transaction that has locked the row.
    Raises: LeaseLost, DatabaseBusy.
    """
    # From here to the commit the row is ours; a process that is stopped in between must not block it.
    yield from store.leases.guard(idle_ms)
    report = yield from finish_attempts(store, [finish])
    if report.accepted:
        return report
    pair = Held(finish.id, finish.token)
    (status,) = yield from store.jobs.lease_status([pair])
    if status.lease == "held":
        yield from store.jobs.lock([finish.id])
        report = yield from finish_attempts(store, [finish])
        if report.accepted:
            return report
        (status,) = yield from store.jobs.lease_status([pair])
    reason = lost_reason(status) or "already_completed"
    raise LeaseLost(reason, Completion._refusal)


@contextmanager
def _ignore_rollback_errors(error: BaseException) -> Iterator[None]:
    """Leave a transaction because of an error; what else is wrong with it does not matter any more."""
    try:
        yield
    except BaseException as raised:
        if raised is not error and not isinstance(raised, Exception):
            raise
