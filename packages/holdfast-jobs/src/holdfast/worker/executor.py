"""Runs one attempt: calls its handler, on the loop, in a thread or in a process, and resolves what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.commands.attempts import FinishReport
from holdfast.commands.start import keep_large
from holdfast.commands.unreadable import next_try_ms
from holdfast.core.codec import RESERVED, encode_output
from holdfast.core.errors import (
    Aborted,
    DatabaseBusy,
    DatabaseUnreachable,
    HandlerInvalid,
    InputUnreadable,
    LeaseLost,
    OutputInvalid,
    RoleRefused,
    SealError,
    TransactionAborted,
)
from holdfast.core.outcome import Snooze
from holdfast.core.records import Finish
from holdfast.core.registry import Handler, JobType
from holdfast.core.sealing import NEVER_LARGE
from holdfast.core.signatures import is_async
from holdfast.observe.context import JobContext, current_job
from holdfast.steps.parking import Killed, Parked
from holdfast.storage.operation import Op
from holdfast.worker.attempt import LOST, AbortReason, Attempt
from holdfast.worker.handler_connections import causes_of, lacked_connection
from holdfast.worker.handler_threads import HandlerThreads
from holdfast.worker.handler_transactions import CompleteInTransaction, Completion
from holdfast.worker.job import Call, Job, Middleware, wrap_call
from holdfast.worker.processes import ProcessHandlers
from holdfast.worker.resolve_outcome import OutcomeResolver, make_finish
from holdfast.worker.worker_context import WorkerContext

if TYPE_CHECKING:
    from holdfast.steps.function import DurableFunction
    from holdfast.steps.functions import Functions

_LOCK_TIMEOUT = "55P03"

NO_CONNECTION_DELAY_MS = 2_000
"""How long at most a job waits whose handler was called and got no connection."""


class AttemptResult(msgspec.Struct):
    """How an attempt ended.

    `finish` is the write still to be made, or the one that `report` says was made in the handler's own transaction.
    Without either nothing is to be written; `is_refused` then says that there would have been something.
    """

    finish: Finish | None
    report: FinishReport | None = None
    error: BaseException | None = None
    is_refused: bool = False


class UndoFailed(Exception):
    """A step of a function that has failed could not be undone."""


class Executor:
    """Runs attempts of every job type of a worker."""

    def __init__(
        self,
        context: WorkerContext,
        calls: HandlerCalls,
        resolver: OutcomeResolver,
        functions: Functions,
    ) -> None:
        self._context = context
        self._calls = calls
        self._functions = functions
        self._resolver = resolver
        # Bound once: each is looked up for every job.
        self._resolve = resolver.resolve
        self._resolve_output = self._resolve_in_transaction
        self._plain_types = functions.plain

    def _postpone(self, attempt: Attempt, error: BaseException, was_called: bool = True) -> Finish:
        """Put a job back that the database failed. One that got no connection before its handler was called is left to
        other workers at once: this one does not claim it before it has a connection for it.
        """
        self._context.connections.note_error(attempt.type.name, error)
        if not lacked_connection(error):
            return self._resolver.postpone(attempt, error)
        delay_ms = NO_CONNECTION_DELAY_MS * self._context.clock.random() if was_called else 0
        return self._resolver.postpone(attempt, error, int(delay_ms))

    async def run(self, attempt: Attempt) -> AttemptResult:
        """Run the handler to its end, whatever that is; even SystemExit is a result."""
        claimed = attempt.claimed
        worker = self._context.id
        job: Job[Any] = Job(
            attempt, worker, self._context.database, self._resolve_output, self._functions
        )
        token = current_job.set(
            JobContext(
                claimed.id, claimed.type, claimed.chain_id, worker, claimed.attempt, claimed.trace
            )
        )
        try:
            payloads = attempt.type.payloads
            if payloads is not None and claimed.input.startswith(RESERVED):
                await payloads.restore([claimed])
            attempt.open_seal()
            if claimed.blockers > 0 or attempt.type.atomic or claimed.failing or claimed.steps:
                postponed = await self._set_up(attempt, job)
                if postponed is not None:
                    return postponed
            if claimed.type in self._plain_types and not claimed.failing:
                value = await self._calls.by_type[claimed.type](job)
            else:
                value = await self._call_specially(attempt, job)
            return await self._end_with_value(attempt, job, value)
        except BaseException as error:
            return await self._end_with_error(attempt, job, error)
        finally:
            if job.function is not None:
                job.function.driver.close()
            current_job.reset(token)
            if job.function is not None:
                self._tell_steps(attempt, job.function)

    def _tell_steps(self, attempt: Attempt, function: DurableFunction) -> None:
        """Say what a function has recorded."""
        emitter = self._context.emitter
        if function.history.recorded or function.history.signals_taken:
            told = {
                "recorded": function.history.recorded,
                "signals": function.history.signals_taken,
            }
            emitter.emit_attempt("steps_recorded", attempt, **told)
        for step, error in function.history.failures:
            emitter.emit_attempt("step_failed", attempt, step=str(step), error=error)

    async def _call_specially(self, attempt: Attempt, job: Job[Any]) -> Any:
        """Call `on_failed` for a failed job, or a handler that is, or may be, a durable function."""
        claimed = attempt.claimed
        if claimed.failing:
            if job.function is not None:
                await self._undo_failed(attempt, job)
            return await self._calls.on_failed(job)
        # Until it has ended once without a durable call, it may be a durable function.
        function = job.durable_function()
        value = await function.parking.drive(self._call_in_turn(attempt, job))
        if not function.driver.is_used:
            self._functions.plain.add(claimed.type)
        return value

    def _call_in_turn(self, attempt: Attempt, job: Job[Any]) -> Awaitable[Any]:
        """Call a handler in a task of its own. Until that has its turn, the attempt counts as not started."""
        started_at, timeout_at = attempt.started_at, attempt.timeout_at
        attempt.started_at = attempt.timeout_at = None

        async def call() -> Any:
            attempt.started_at, attempt.timeout_at = started_at, timeout_at
            if timeout_at is not None:
                self._context.wakes.deadlines.expect(timeout_at)
            return await self._calls.by_type[attempt.type.name](job)

        return call()

    async def run_batch(self, attempts: Sequence[Attempt]) -> list[AttemptResult]:
        """Run a batch handler once for several attempts; a result per job, or one error for all.

        `on_failed` is called for each job.
        """
        if any(each.claimed.failing for each in attempts):
            others = [each for each in attempts if not each.claimed.failing]
            results = iter(await self.run_batch(others) if others else [])
            return [
                await self.run(each) if each.claimed.failing else next(results) for each in attempts
            ]
        jobs: list[Job[Any]] = [Job(each, self._context.id, None) for each in attempts]
        try:
            if (payloads := attempts[0].type.payloads) is not None:
                await payloads.restore([each.claimed for each in attempts])
            _open_seals(attempts)
            await self._read_blockers(jobs)
            values = await self._calls.by_type[attempts[0].type.name](jobs)  # type: ignore[arg-type]
            values = _one_each(values, len(jobs))
        except BaseException as error:
            return [
                await self._end_with_error(each, job, error)
                for each, job in zip(attempts, jobs, strict=True)
            ]
        return [
            await self._end_in_batch(each, job, value)
            for each, job, value in zip(attempts, jobs, values, strict=True)
        ]

    async def _end_in_batch(self, attempt: Attempt, job: Job[Any], value: Any) -> AttemptResult:
        try:
            if isinstance(value, Exception) and not isinstance(value, Snooze):
                raise value
            return await self._end_with_value(attempt, job, value)
        except BaseException as error:
            # A cancellation too: the others of the batch would be lost with this one.
            return await self._end_with_error(attempt, job, error)

    async def _set_up(self, attempt: Attempt, job: Job[Any]) -> AttemptResult | None:
        """Read blockers and open an atomic handler's transaction; a database that fails here costs no attempt."""
        database, function = self._context.database, attempt.type.handler
        try:
            await self._read_blockers([job])
            if attempt.claimed.failing:
                found = database.store.on_failed.of_job(attempt.claimed.id)
                attempt.failing = await database.read_async(found)
                function = attempt.type.on_failed
            if attempt.claimed.steps:
                job.function = await self._functions.load(attempt)
            if attempt.type.atomic and function is not None:
                await self._open_completion(job, is_async(function))
        except (DatabaseUnreachable, DatabaseBusy) as error:
            return AttemptResult(self._postpone(attempt, error, was_called=False), error=error)
        return None

    async def _read_blockers(self, jobs: Sequence[Job[Any]]) -> None:
        waited = {job.claimed.id: job for job in jobs if job.claimed.blockers > 0}
        if not waited:
            return
        database = self._context.database
        records = await database.read_async(database.store.blockers.of_jobs(sorted(waited)))
        if (payloads := jobs[0].attempt_state.type.payloads) is not None:
            await payloads.restore(records)
        for job_id, job in waited.items():
            job.set_blockers([each for each in records if each.job_id == job_id])

    async def _open_completion(self, job: Job[Any], is_async: bool) -> None:
        """Open an atomic handler's transaction, sync or async as the handler is, around its middlewares too."""
        completion = job.new_completion(is_first=True)
        if is_async:
            await completion.__aenter__()
        else:
            await self._calls.in_thread(completion.__enter__)
        job.completion, job.transaction = completion, completion.tx

    async def _end_with_value(self, attempt: Attempt, job: Job[Any], value: Any) -> AttemptResult:
        """Resolve what the handler returned, and commit the transaction it left open; a lost lease discards both."""
        if attempt.abort_reason is not None:
            _check_counts(attempt.abort_reason)
        if job.emission is not None:
            await job.emission.end()
        if job.function is not None:
            ended = await self._end_function(job, job.function)
            if ended is not None:
                return ended
        if job.own_transaction is not None:
            return await self._end_in_own_transaction(job.own_transaction)
        finish = self._resolve(attempt, value)
        payloads = attempt.type.payloads
        if payloads is not None and (finish.next or len(finish.output or "") > NEVER_LARGE):
            await payloads.keep([finish])
        if job.function is not None:
            await self._keep_records(attempt, job.function, finish)
        if finish.next_blockers:
            database = self._context.database
            await database.read_async(self._resolver.check_waits(database.store, finish))
        if job.completion is None or not job.completion.is_open:
            return AttemptResult(finish)
        return await self._commit(attempt, job.completion, finish)

    async def _commit(
        self, attempt: Attempt, completion: Completion, finish: Finish
    ) -> AttemptResult:
        """Commit a handler's transaction with the outcome in it."""
        if not attempt.take_ending("slot"):
            raise Aborted("timeout")
        if completion.is_async:
            return AttemptResult(finish, report=await completion.commit_async(finish))
        report = await self._calls.in_thread(completion.commit, finish)
        return AttemptResult(finish, report=report)

    async def _keep_records(
        self, attempt: Attempt, function: DurableFunction, finish: Finish
    ) -> None:
        if finish.kind == "snooze":
            await function.save()
        elif finish.kind in ("complete", "continue"):
            attempt.unused_steps = await function.record_unused()

    def _resolve_in_transaction(self, attempt: Attempt, output: Any) -> Op[Finish]:
        # What is given to complete(tx=…) is not what the handler is annotated to return.
        finish = self._resolve(attempt, output, encode_output)
        yield from keep_large(attempt.type.sealer, [finish])
        yield from self._resolver.check_waits(self._context.database.store, finish)
        return finish

    async def _end_in_own_transaction(self, own: CompleteInTransaction) -> AttemptResult:
        """End with what the handler's own transaction wrote. Raises: TransactionAborted when it did not commit."""
        outcome = await own.committed_outcome()
        if outcome is None:
            raise TransactionAborted(
                "the transaction in which the job was completed did not commit",
                help="let an exception leave the handler when the transaction is rolled back",
            )
        finish, report = outcome
        return AttemptResult(finish, report=report)

    async def _end_with_error(
        self, attempt: Attempt, job: Job[Any], error: BaseException
    ) -> AttemptResult:
        if _is_discarded(error):
            raise error
        try:
            if job.emission is not None:
                await job.emission.end(error)
            ended = None
            failing = attempt.claimed.failing
            if job.function is not None and attempt.abort_reason is None and not failing:
                ended = await self._end_function(job, job.function)
            return ended or await self._resolve_error(attempt, job, error)
        except Killed:
            return AttemptResult(None)
        except (DatabaseUnreachable, DatabaseBusy, asyncio.CancelledError) as raised:
            # What became of the handler's own transaction is not known. If it did complete the job, the write that
            # follows does not fit, and finds that out.
            if attempt.abort_reason in LOST or attempt.abort_reason == "timeout":
                return AttemptResult(None, error=error)
            if attempt.abort_reason is not None and isinstance(raised, asyncio.CancelledError):
                return AttemptResult(make_finish(attempt, self._context.id, "release"), error=error)
            return AttemptResult(self._postpone(attempt, error), error=error)
        except LeaseLost as lost:
            return AttemptResult(None, error=lost, is_refused=True)
        except BaseException as worse:
            # What undoes a step may raise what a handler may raise.
            return AttemptResult(self._resolver.resolve_error(attempt, worse), error=worse)

    async def _resolve_error(
        self, attempt: Attempt, job: Job[Any], error: BaseException
    ) -> AttemptResult:
        await self._roll_back(job, error)
        if job.own_transaction is not None:
            outcome = await job.own_transaction.committed_outcome()
            if outcome is not None:
                # The commit came before the error: the job is completed, whatever was raised after it.
                return AttemptResult(outcome[0], report=outcome[1], error=error)
        reason = attempt.abort_reason
        if reason in LOST or reason == "timeout":
            return AttemptResult(None, error=error, is_refused=isinstance(error, LeaseLost))
        if isinstance(error, LeaseLost) and attempt.ended_by == "slot":
            return AttemptResult(None, error=error, is_refused=True)
        if reason is not None and isinstance(error, asyncio.CancelledError | Aborted):
            return AttemptResult(await self._release(attempt, job), error=error)
        if isinstance(error, InputUnreadable | SealError) and error.job_id is not None:
            return AttemptResult(await self._wait_for_code(attempt, error), error=error)
        if lacked_connection(error) or await self._only_waited_for_lock(attempt, error):
            return AttemptResult(self._postpone(attempt, error), error=error)
        finish = self._resolver.resolve_error(attempt, error)
        if job.function is not None and not attempt.claimed.failing:
            finish = await self._end_failed_function(job, job.function, finish)
        return AttemptResult(finish, error=error)

    async def _end_failed_function(
        self, job: Job[Any], function: DurableFunction, finish: Finish
    ) -> Finish:
        """Undo a function that fails for good; of one that is tried again, keep the positions of its loops."""
        if finish.kind == "fail" and function.history.with_undo():
            return await self._undo(job, function, str(finish.error))
        await function.save()
        return finish

    async def _release(self, attempt: Attempt, job: Job[Any]) -> Finish:
        """Give a job back as it came, if the token is still valid: that its attempt ends is not its fault."""
        if job.function is not None and attempt.abort_reason == "shutdown":
            await job.function.save()
        return make_finish(attempt, self._context.id, "release")

    async def _end_function(self, job: Job[Any], function: DurableFunction) -> AttemptResult | None:
        """End a durable function that waits, or that the code does not fit any more, or that is being undone."""
        attempt = job.attempt_state
        function.parking.close()
        await function.driver.until_quiet()
        function.reach("before the attempt ended")
        if function.history.stopped is not None:
            finish = await self._wait_for_code(attempt, function.history.stopped)
            return AttemptResult(finish, error=function.history.stopped)
        if function.history.is_failed:
            return AttemptResult(await self._undo(job, function, str(function.history.failure)))
        if function.parking.has_begun:
            await function.save()
            waits = {"until": function.driver.wakes_at, "ignores": function.driver.find_ignored()}
            return AttemptResult(make_finish(attempt, self._context.id, "park", **waits))
        return None

    async def _undo(self, job: Job[Any], function: DurableFunction, error: str) -> Finish:
        """Undo what a function did that has failed, and fail it; what cannot be undone is tried again."""
        if job.emission is not None:
            job.emission.go_on()
        problem = await self._run_undos(job.attempt_state, function, error)
        if job.emission is not None:
            await job.emission.end(UndoFailed(error))
        return self._resolver.resolve_undone(job.attempt_state, error, problem)

    async def _run_undos(
        self, attempt: Attempt, function: DurableFunction, error: str
    ) -> str | None:
        """Undo the steps of a function; return why one could not be undone."""
        undo = self._calls.with_around(
            attempt.type, lambda job: function.run_undos(error), function.is_async
        )
        job: Job[Any] = Job(attempt, self._context.id, None)
        problem: str | None = await (
            undo(job) if function.is_async else self._calls.in_thread(undo, job)
        )
        return problem

    async def _undo_failed(self, attempt: Attempt, job: Job[Any]) -> None:
        """Undo a function that others found to have failed; its handler is replayed to learn how.

        Not again if that has killed a worker. Raises: UndoFailed.
        """
        function, failing = job.function, attempt.failing
        assert function is not None
        if attempt.claimed.crashes:
            raise UndoFailed("the worker died while the function was replayed to undo its steps")
        try:
            await function.parking.drive(self._calls.by_type[attempt.claimed.type](job))
        except (Exception, asyncio.CancelledError, Parked):
            if attempt.abort_reason is not None:
                raise
        function.parking.close()
        problem = await self._run_undos(attempt, function, str(failing.error if failing else ""))
        if problem is not None:
            raise UndoFailed(problem)
        job.function = None

    async def _wait_for_code(self, attempt: Attempt, error: InputUnreadable | SealError) -> Finish:
        """Remember a job whose input cannot be read, and put it back; the others of its batch are not to blame."""
        claimed, database = attempt.claimed, self._context.database
        if claimed.failing:
            return self._resolver.resolve_error(attempt, error)
        if error.job_id != claimed.id:
            return self._postpone(attempt, error)
        unreadable, after_ms = database.store.unreadable, self._context.options.unhandled_after_ms
        try:
            noted = unreadable.note(claimed.id, claimed.type, error.message)
            delay_ms = next_try_ms(await database.run_async(noted), after_ms)
            if delay_ms is None:
                # Forgotten first, so that a redrive waits anew instead of failing at once.
                await database.run_async(unreadable.forget([claimed.id]))
        except (DatabaseUnreachable, DatabaseBusy, RoleRefused):
            return self._postpone(attempt, error)
        finish = self._resolver.wait_for_code(attempt, error, delay_ms)
        if delay_ms is not None:
            self._context.emitter.emit_unreadable(attempt, finish)
        return finish

    async def _roll_back(self, job: Job[Any], error: BaseException) -> None:
        completion = job.completion
        if completion is None or not completion.is_open:
            return
        if completion.is_async:
            await completion.roll_back_async(error)
        else:
            await self._calls.in_thread(completion.roll_back, error)

    async def _only_waited_for_lock(self, attempt: Attempt, error: BaseException) -> bool:
        """Whether a handler only waited in vain for a lock, through no fault of its own.

        In SQLite an atomic handler's transaction begins with the wait for the file. In PostgreSQL a worker that was
        taken for dead may still hold row locks, until its handler's timeout would be over.
        """
        if not _is_lock_timeout(error):
            return False
        store = self._context.store
        if store.dialect == "sqlite":
            return attempt.type.atomic
        try:
            history = await self._context.database.read_async(store.attempts.of(attempt.claimed.id))
        except (DatabaseUnreachable, DatabaseBusy):
            return False
        since = attempt.claimed.claimed_at - attempt.policy.timeout_ms * 1000
        return any(each.kind == "reap" and each.ended_at >= since for each in history)


class HandlerCalls:
    """The call of each job type's handler, with the middlewares around it."""

    def __init__(
        self,
        context: WorkerContext,
        middlewares: Sequence[Middleware],
        threads: HandlerThreads,
        processes: ProcessHandlers,
    ) -> None:
        """Raises: HandlerInvalid for combinations that cannot work."""
        self._context = context
        self._processes = processes
        self.in_thread = threads.run
        self.by_type = {
            name: wrap_call(self._call(each), middlewares) for name, each in context.types.items()
        }

    async def on_failed(self, job: Job[Any]) -> Any:
        """Call the function that a type has for its failed jobs; another version of the code may have had one."""
        function = job.attempt_state.type.on_failed
        if function is None:
            return None
        call = self.with_around(
            job.attempt_state.type, self._with_check(function), is_async(function)
        )
        return await (call(job) if is_async(function) else self.in_thread(call, job))

    def _call(self, type: JobType) -> Call:
        handler = type.handler
        if handler is None:
            raise HandlerInvalid(f"job type {type.name} has no handler here")
        if type.batch is not None and (type.atomic or type.executor == "process"):
            raise HandlerInvalid(
                f"the batch handler of {type.name} can neither be atomic nor run in a process",
                help="omit batch, or use a plain handler on the loop or in a thread",
            )
        checked = self._with_check(handler, type.batch is not None)
        call = self.with_around(type, checked, is_async(handler))
        match type.executor:
            case "process":
                return self._with_check(self._processes.call(type))
            case "thread":
                return partial(self.in_thread, call)
            case "loop":
                return call

    def with_around(self, type: JobType, call: Handler, is_async: bool) -> Handler:
        """Return a call with what its type has around it."""
        return call if type.around is None else type.around(call, is_async)

    def _with_check(
        self, handler: Callable[..., Any], is_batch: bool = False
    ) -> Callable[..., Any]:
        """Check, as the last step before a handler, that it may begin: what came before it may have taken long."""
        may_begin, monotonic = self._context.may_begin, self._context.clock.monotonic

        def call(job: Job[Any]) -> Any:
            # Every job comes through here, so it is asked as directly as can be.
            if not may_begin(job.attempt_state, monotonic()):
                raise Aborted(str(job.abort_reason))
            return handler(job)

        def call_batch(jobs: Sequence[Job[Any]]) -> Any:
            self._check_batch(jobs)
            return handler(jobs)

        return call_batch if is_batch else call

    def check(self, job: Job[Any]) -> None:
        """Raises: Aborted, unless a job may begin now."""
        if not self._context.may_begin(job.attempt_state, self._context.clock.monotonic()):
            raise Aborted(str(job.abort_reason))

    def _check_batch(self, jobs: Sequence[Job[Any]]) -> None:
        """Raises: Aborted, unless all jobs of a call may begin now; the others are given back with those."""
        now = self._context.clock.monotonic()
        attempts = [each.attempt_state for each in jobs]
        stopped = [each for each in attempts if not self._context.may_begin(each, now)]
        if stopped:
            for each in attempts:
                each.abort("error", now)
            raise Aborted(str(stopped[0].abort_reason))


def _open_seals(attempts: Sequence[Attempt]) -> None:
    """Open the inputs of a batch; an error of its handler may repeat any of them. Raises: SealError."""
    for each in attempts:
        each.open_seal()
    is_any_sealed = any(each.sealed for each in attempts)
    for each in attempts:
        each.sealed = is_any_sealed


def _check_counts(reason: AbortReason) -> None:
    """Raises: LeaseLost or Aborted, unless what an aborted handler has returned counts."""
    if reason in LOST:
        raise LeaseLost(str(reason), "the result came too late")
    if reason != "shutdown":
        raise Aborted(str(reason))


def _is_discarded(error: BaseException) -> bool:
    """Whether the loop is gone and closes what it left behind; nothing can be awaited then."""
    if not isinstance(error, GeneratorExit):
        return False
    try:
        return asyncio.current_task() is None
    except RuntimeError:
        return True


def _is_lock_timeout(error: BaseException) -> bool:
    """Whether an error, or what caused it, says that waiting for a lock took too long; for any driver."""
    return any(
        isinstance(each, DatabaseBusy) or getattr(each, "sqlstate", None) == _LOCK_TIMEOUT
        for each in causes_of(error)
    )


def _one_each(values: Any, count: int) -> Sequence[Any]:
    """Check what a batch handler returned. Raises: OutputInvalid."""
    if values is None:
        return [None] * count
    if not isinstance(values, list | tuple) or len(values) != count:
        raise OutputInvalid(f"a batch handler returns a list of {count}, or None")
    return values
