"""The job as its handler and its middlewares see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload
from uuid import UUID

import msgspec

from holdfast.core.codec import RESERVED, decode_any
from holdfast.core.errors import (
    Aborted,
    AlreadyCompleting,
    InputUnreadable,
    InvalidOption,
    SealError,
    StepsRefused,
    WrongState,
)
from holdfast.core.instants import to_datetime
from holdfast.core.job_context import decode_context
from holdfast.core.records import BlockerRecord, ClaimedJob, Held, State
from holdfast.core.redaction import printable
from holdfast.core.sealing import is_sealed, open_output
from holdfast.extensions import count_costs
from holdfast.steps.job_steps import JobSteps
from holdfast.storage.database import Database
from holdfast.worker.attempt import AbortReason, Attempt
from holdfast.worker.handler_transactions import (
    CompleteInTransaction,
    Completion,
    Preparation,
    ResolveOutput,
)

if TYPE_CHECKING:
    from holdfast.client.adapters.base import AsyncTx, SyncTx
    from holdfast.steps.function import DurableFunction
    from holdfast.steps.functions import Functions

T = TypeVar("T")
R = TypeVar("R")

_UNREAD: Any = msgspec.UNSET


class BlockerResult(msgspec.Struct, frozen=True):
    """A chain this job waited for, and its result: an output, or the error of one that did not complete."""

    chain_id: UUID
    state: State | None
    output: Any
    error: str | None = None


class Job(JobSteps, Generic[T]):
    """One attempt's view of a job: its input, its abort signal and the ways it can end."""

    __slots__ = (
        "_attempt",
        "_blockers",
        "_database",
        "_functions",
        "_input",
        "_preparation",
        "_resolve_output",
        "blocker_records",
        "completion",
        "emission",
        "function",
        "own_transaction",
        "transaction",
        "worker",
    )

    def __init__(
        self,
        attempt: Attempt,
        worker: str,
        database: Database | None,
        resolve_output: ResolveOutput | None = None,
        functions: Functions | None = None,
    ) -> None:
        self._attempt = attempt
        self._functions = functions
        self._resolve_output = resolve_output
        self._database = database
        self._input: Any = _UNREAD
        self._blockers: tuple[BlockerResult, ...] = ()
        self._preparation: Preparation | None = None
        self.blocker_records: Sequence[BlockerRecord] = ()
        self.worker = worker
        self.transaction: Any = None
        self.completion: Completion | None = None
        self.own_transaction: CompleteInTransaction | None = None
        self.function: DurableFunction | None = None
        self.emission: Any = None

    @property
    def id(self) -> UUID:
        """The job's id: the idempotency key for effects outside the database."""
        return UUID(self._attempt.claimed.id)

    @property
    def type(self) -> str:
        """The job type's name."""
        return self._attempt.claimed.type

    @property
    def input(self) -> T:
        """The input, decoded and checked at its first use. Raises: InputUnreadable."""
        if self._input is _UNREAD:
            self._input = self._read_input(self._attempt.type.read_input)
        return cast(T, self._input)

    def current_input(self) -> str:
        """The input as text of the version that the code has. Raises: InputUnreadable."""
        return self._read_input(self._attempt.type.current_input)

    def _read_input(self, read: Callable[[str, int | None], R]) -> R:
        claimed = self._attempt.claimed
        try:
            return read(claimed.input, claimed.version)
        except InputUnreadable as error:
            raise self._unreadable(error) from (None if self._attempt.sealed else error.__cause__)

    def _unreadable(self, error: InputUnreadable) -> InputUnreadable:
        """Return the error with this job; what led to it may repeat a part of the input."""
        if self._attempt.sealed and error.__cause__ is not None:
            error = InputUnreadable(
                f"the sealed input cannot be read as {self._attempt.type.input.name}"
            )
        error.job_id = self._attempt.claimed.id
        return error

    @property
    def chain_id(self) -> UUID:
        """The chain this job belongs to."""
        return UUID(self._attempt.claimed.chain_id)

    @property
    def chain_index(self) -> int:
        """The job's place in its chain, from 0."""
        return self._attempt.claimed.chain_index

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._attempt.claimed.attempt

    @property
    def fence(self) -> int:
        """A number that grows with every claim of this job, for resources that can reject an older one."""
        return self._attempt.claimed.fence

    @property
    def key(self) -> str | None:
        """The deduplication key the chain was started with."""
        return self._attempt.claimed.key

    @property
    def priority(self) -> int:
        """0 is the most urgent."""
        return self._attempt.claimed.priority

    @property
    def trace(self) -> str | None:
        """The W3C trace context in which the job was started."""
        return self._attempt.claimed.trace

    @property
    def context(self) -> dict[str, str]:
        """What the job was started in, such as its tenant; empty unless the application has a context."""
        return decode_context(self._attempt.claimed.context)

    @property
    def created_at(self) -> datetime:
        """When the job was written."""
        return to_datetime(self._attempt.claimed.created_at)

    @property
    def error(self) -> str | None:
        """Why the job has failed for good, in `on_failed`; None in its handler."""
        failing = self._attempt.failing
        return None if failing is None else failing.error

    @property
    def blockers(self) -> tuple[BlockerResult, ...]:
        """The chains this job waited for, in declared order."""
        return self._blockers

    @property
    def aborted(self) -> bool:
        """Whether the handler must stop."""
        return self._attempt.abort_reason is not None

    @property
    def abort_reason(self) -> AbortReason | None:
        """Why the handler must stop."""
        return self._attempt.abort_reason

    def wait_for_abort(self, seconds: float | None = None) -> bool:
        """Sleep in a thread until the handler must stop or the time is over; return whether it must stop."""
        return self._attempt.flag.wait(seconds)

    def checkpoint(self) -> None:
        """Raise Aborted when the handler must stop; cheap enough for inner loops."""
        if self._attempt.abort_reason is not None:
            raise Aborted(self._attempt.abort_reason)

    def progress(self, fraction: float, note: str = "") -> None:
        """Report progress; recorded with the next heartbeat. Raises: InvalidOption."""
        self._attempt.progress = check_progress(fraction, note)

    def spent(self, cost: int) -> Any:
        """Settle what this attempt cost of rates that count costs; awaited in async handlers. Raises: CostConflict."""
        return count_costs().spend(
            self._require_database(), self.claimed, self._attempt.type.flow, cost
        )

    def emit(self, data: Any) -> None:
        """Append to the chain's output, for those who follow it. Raises: WrongState without holdfast-output."""
        if self.emission is None:
            self._require_database()
            if (opening := getattr(self._functions, "open_emission", None)) is None:
                raise WrongState(f"{self.type} cannot emit", help="call add_output(app) first")
            self.emission = opening(self)
        self.emission.add(data)

    @property
    def tx(self) -> Any:
        """The transaction of an atomic handler, which also completes the job."""
        if self.transaction is None:
            raise WrongState(
                f"job type {self.type} is not atomic, so there is no job.tx",
                help="declare it with atomic=True, or use job.prepare() and job.complete()",
            )
        return self.transaction

    def prepare(self) -> Preparation:
        """Open a short transaction before the work: `with` in a sync handler, `async with` in an async one.

        It commits only while this attempt holds the job. Raises: AlreadyCompleting, LeaseLost.
        """
        if self.transaction is not None:
            raise AlreadyCompleting("an atomic handler already runs in one transaction")
        if self.completion is not None or self.own_transaction is not None:
            raise AlreadyCompleting("prepare() came after complete()")
        if self._preparation is not None:
            raise AlreadyCompleting("prepare() was called twice")
        self._preparation = Preparation(
            self._require_database(), self._held, self._idle_ms, self._attempt.prepare_tx, True
        )
        return self._preparation

    @overload
    def complete(self) -> Completion: ...
    @overload
    def complete(self, *, tx: SyncTx, output: Any = None) -> None: ...
    @overload
    def complete(self, *, tx: AsyncTx, output: Any = None) -> Coroutine[Any, Any, None]: ...
    def complete(self, *, tx: Any = None, output: Any = None) -> Any:
        """Open the transaction that completes this job; it commits when handler and middlewares have returned.

        With `tx` the job is completed in your own transaction instead (SQLAlchemy, Django, psycopg …), as its last
        statement: a session's pending objects are flushed before it, `output` is what the handler would have returned,
        and your commit is the job's.
        Raises: AlreadyCompleting, LeaseLost.
        """
        if self.transaction is not None:
            raise AlreadyCompleting("an atomic handler already runs in one transaction")
        if self.completion is not None or self.own_transaction is not None:
            raise AlreadyCompleting("complete() was called twice")
        if self._preparation is not None and self._preparation.is_open:
            raise AlreadyCompleting("complete() came before the end of prepare()")
        if tx is None:
            self.completion = self.new_completion()
            return self.completion
        database = self._require_database()
        assert self._resolve_output is not None
        resolve = self._resolve_output
        if self.emission is not None:
            resolve = self.emission.write_before(resolve)
        self.own_transaction = CompleteInTransaction(database, resolve, self._attempt)
        return self.own_transaction.write(tx, output)

    def new_completion(self, is_first: bool = False) -> Completion:
        """Make the transaction that ends this attempt; it may be idle for half a lease."""
        begin = self._attempt.prepare_tx
        return Completion(self._require_database(), self._held, self._idle_ms, begin, is_first)

    @property
    def _held(self) -> Held:
        return Held(self.claimed.id, self.claimed.token)

    @property
    def _idle_ms(self) -> int:
        return self._attempt.policy.lease_ms // 2

    @property
    def attempt_state(self) -> Attempt:
        """The attempt as the worker holds it."""
        return self._attempt

    @property
    def claimed(self) -> ClaimedJob:
        """The job as it was claimed."""
        return self._attempt.claimed

    @property
    def started_version(self) -> int:
        """The version of the input that the job was started with, for branches between old and new code."""
        return self._attempt.claimed.version or 1

    def durable_function(self) -> DurableFunction:
        """The function of this attempt, opened by its first durable call. Raises: StepsRefused."""
        known = self.function
        is_refused = self._functions is None or self.claimed.failing or self._attempt.type.atomic
        if is_refused and known is None:
            raise StepsRefused(f"the handler of {self.type} cannot have steps")
        if self.completion is not None or self.own_transaction is not None:
            raise StepsRefused("no step can follow complete()", help="call complete() last")
        if self._preparation is not None and self._preparation.is_open:
            raise StepsRefused("no step can be called within prepare()", help="end it before")
        if known is None:
            assert self._functions is not None
            known = self.function = self._functions.open(self._attempt)
        return known

    def _require_database(self) -> Database:
        if self._database is None:
            raise WrongState(
                "batch handlers and handlers in their own process cannot do this",
                help="return the outcomes, or use a handler that takes a single job",
            )
        return self._database

    def set_blockers(self, records: Sequence[BlockerRecord]) -> None:
        """Set what the worker read of the blocking chains, their outputs opened. Raises: SealError."""
        records = [self._open_output(each) for each in records]
        self.blocker_records = records
        self._blockers = tuple(
            BlockerResult(
                UUID(each.chain_id),
                each.state,
                None if each.output is None else decode_any(each.output),
                each.error,
            )
            for each in records
        )

    def _open_output(self, record: BlockerRecord) -> BlockerRecord:
        if record.output is None or not record.output.startswith(RESERVED):
            return record
        try:
            text = open_output(self._attempt.type.sealer, record.output, record.chain_id)
        except SealError as error:
            error.job_id = self._attempt.claimed.id
            raise
        self._attempt.sealed |= is_sealed(record.output)
        return msgspec.structs.replace(record, output=text)


if TYPE_CHECKING:
    from holdfast.steps.job_steps import SyncSteps

    class SyncJob(SyncSteps, Job[T]):
        """The job of a sync handler: its durable calls return what those of an async handler are awaited for."""
else:
    SyncJob = Job


def check_progress(fraction: object, note: object) -> tuple[float, str]:
    """Return progress as it is recorded: from 0 to 1, with a short note. Raises: InvalidOption."""
    try:
        reached = float(cast(float, fraction))
    except (TypeError, ValueError, OverflowError):
        raise InvalidOption(
            f"{repr(fraction)[:60]} is not a fraction of the work", help="pass a number from 0 to 1"
        ) from None
    return min(1.0, max(0.0, reached)), printable(str(note))[:200]


Next = Callable[[], Awaitable[Any]]
Middleware = Callable[[Job[Any], Next], Awaitable[Any]]
"""`async def middleware(job, next): … return await next()`; one that raises fails the attempt.

They wrap each attempt, the first outermost: they see the job, its return value and its error.
"""

Call = Callable[[Job[Any]], Awaitable[Any]]


def wrap_call(call: Call, middlewares: Sequence[Middleware]) -> Call:
    """Put the middlewares around a call, the first outermost."""
    for middleware in reversed(middlewares):
        call = _around(middleware, call)
    return call


def _around(middleware: Middleware, inner: Call) -> Call:
    async def call(job: Job[Any]) -> Any:
        return await middleware(job, lambda: inner(job))

    return call
