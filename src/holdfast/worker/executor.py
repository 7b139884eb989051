"""Calls handlers where they belong: on the loop, in a thread, in a process of their own.

Runs one attempt: calls the handler in its mode and colour, and turns what comes of it into a write.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from holdfast.commands.finish import FinishReport
from holdfast.core.codec import encode_output
from holdfast.core.errors import (
    Aborted,
    DatabaseBusy,
    DatabaseUnreachable,
    HandlerInvalid,
    LeaseLost,
    OutputInvalid,
)
from holdfast.core.outcome import Continue, Snooze
from holdfast.core.records import Finish
from holdfast.core.registry import JobType
from holdfast.observe.context import JobContext, current_job
from holdfast.storage.operation import Op
from holdfast.worker.attempt import LOST, Attempt
from holdfast.worker.context import Workplace
from holdfast.worker.handler_transactions import Handover, undone
from holdfast.worker.job import Call, Job, Middleware, wrapped
from holdfast.worker.processes import ProcessHandlers
from holdfast.worker.resolve_outcome import (
    Continuation,
    describe,
    finish_of,
    judge_error,
    judge_value,
    snoozed,
)


class Calls:
    """One call per job type, with the middlewares around it."""

    def __init__(
        self,
        types: Mapping[str, JobType],
        middlewares: Sequence[Middleware],
        threads: ThreadPoolExecutor,
        processes: ProcessHandlers,
    ) -> None:
        """Raises: HandlerInvalid for combinations that cannot work."""
        self._threads = threads
        self._processes = processes
        self._calls = {name: wrapped(self._call(each), middlewares) for name, each in types.items()}

    def of(self, name: str) -> Call:
        """The call of a type's handler; a batch handler's takes a list of jobs."""
        return self._calls[name]

    def _call(self, type: JobType) -> Call:
        handler = type.handler
        if handler is None:
            raise HandlerInvalid(f"job type {type.name} has no handler here")
        if type.batch is not None and (type.atomic or type.executor == "process"):
            raise HandlerInvalid(
                f"the batch handler of {type.name} can neither be atomic nor run in a process",
                help="leave batch out, or use a plain handler on the loop or in a thread",
            )
        match type.executor:
            case "process":
                return self._processes.call(type)
            case "thread":
                return self._threaded(handler)
            case "loop":
                call: Call = handler
                return call

    def _threaded(self, handler: Callable[..., Any]) -> Call:
        async def call(job: Job[Any]) -> Any:
            return await self.in_thread(handler, job)

        return call

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run something in a thread, with the caller's context.

        A thread cannot be stopped from outside: told to stop, we wait until it obeys its signal, and what it answers
        still counts. The second cancellation leaves it alone.
        """
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        future = loop.run_in_executor(self._threads, context.run, outcome_of, function, arguments)
        try:
            value, error = await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            value, error = future.result()
        if error is not None:
            raise error
        return value


def outcome_of(
    function: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[Any, BaseException | None]:
    """Keep an error as a value: a future takes no StopIteration and would never end."""
    try:
        return function(*arguments), None
    except BaseException as error:
        return None, error


_LOCK_TIMEOUT = "55P03"


class Ended(msgspec.Struct):
    """How an attempt ended.

    `finish` is the write still to be made, or the one that `report` says was made in the handler's own transaction.
    Without either nothing is to be written; `is_refused` then tells that there would have been something.
    """

    finish: Finish | None
    report: FinishReport | None = None
    error: BaseException | None = None
    is_refused: bool = False


class Execution:
    """Knows how to run every job type of a worker."""

    def __init__(self, place: Workplace, calls: Calls, continuation: Continuation) -> None:
        self._place = place
        self._calls = calls
        self._continuation = continuation

    async def run(self, attempt: Attempt) -> Ended:
        """Run the handler to its end, whatever that is, a handler that ends itself by force included."""
        claimed = attempt.claimed
        job: Job[Any] = Job(attempt, self._place.id, self._place.database, self._judge_handed_over)
        token = current_job.set(
            JobContext(
                claimed.id,
                claimed.type,
                claimed.chain_id,
                self._place.id,
                claimed.attempt,
                claimed.trace,
            )
        )
        try:
            if claimed.blockers or attempt.type.atomic:
                failed = await self._set_up(attempt, job)
                if failed is not None:
                    return failed
            value = await self._calls.of(claimed.type)(job)
            if attempt.abort_reason is None and job.is_plain:
                finish = self._judge(attempt, value)
                if not finish.next_blockers:
                    return Ended(finish)
            return await self._answered(attempt, job, value)
        except BaseException as error:
            return await self._failed(attempt, job, error)
        finally:
            current_job.reset(token)

    async def run_batch(self, attempts: Sequence[Attempt]) -> list[Ended]:
        """Run a batch handler once for several attempts; an answer per job, or one error for all."""
        jobs: list[Job[Any]] = [Job(each, self._place.id, None) for each in attempts]
        try:
            await self._read_blockers(jobs)
            answers = await self._calls.of(attempts[0].type.name)(jobs)  # type: ignore[arg-type]
            answers = _one_each(answers, len(jobs))
        except BaseException as error:
            return [
                await self._failed(each, job, error)
                for each, job in zip(attempts, jobs, strict=True)
            ]
        return [
            await self._answered_in_batch(each, job, answer)
            for each, job, answer in zip(attempts, jobs, answers, strict=True)
        ]

    async def _answered_in_batch(self, attempt: Attempt, job: Job[Any], answer: Any) -> Ended:
        try:
            if isinstance(answer, Exception) and not isinstance(answer, Snooze):
                raise answer
            return await self._answered(attempt, job, answer)
        except Exception as error:
            return await self._failed(attempt, job, error)

    async def _set_up(self, attempt: Attempt, job: Job[Any]) -> Ended | None:
        """Read blockers and open an atomic handler's transaction; a database that fails here costs no attempt."""
        try:
            await self._read_blockers([job])
            if attempt.type.atomic:
                await self._open(job, attempt.type.executor == "loop")
        except (DatabaseUnreachable, DatabaseBusy) as error:
            return self._put_off(attempt, error)
        return None

    def _put_off(self, attempt: Attempt, error: BaseException) -> Ended:
        """Try again later without costing an attempt; the history says why."""
        text, _ = describe(error)
        delay_ms = attempt.terms.retry.delay_ms(1, self._place.clock.random())
        finish = finish_of(attempt, self._place.id, "snooze", delay_ms=delay_ms, error=text)
        return Ended(finish, error=error)

    async def _is_excused(self, attempt: Attempt, error: BaseException) -> bool:
        """Whether a handler only waited in vain for a lock, through no fault of its own.

        In SQLite an atomic handler's transaction begins with the wait for the file. In PostgreSQL a worker that was
        taken for dead may still sit on rows, until its handler's time would be over.
        """
        if not _waited_for_a_lock(error):
            return False
        store = self._place.store
        if store.dialect == "sqlite":
            return attempt.type.atomic
        try:
            history = await self._place.database.read_async(store.jobs.attempts(attempt.claimed.id))
        except (DatabaseUnreachable, DatabaseBusy):
            return False
        since = attempt.claimed.claimed_at - attempt.terms.timeout_ms * 1000
        return any(each.kind == "reap" and each.ended_at >= since for each in history)

    async def _read_blockers(self, jobs: Sequence[Job[Any]]) -> None:
        waited = {job.claimed.id: job for job in jobs if job.claimed.blockers}
        if not waited:
            return
        database = self._place.database
        records = await database.read_async(database.store.blockers.of_jobs(sorted(waited)))
        for job_id, job in waited.items():
            job.see_blockers([each for each in records if each.job_id == job_id])

    async def _open(self, job: Job[Any], is_async: bool) -> None:
        """Open an atomic handler's transaction in the handler's colour, around middlewares and all."""
        completion = job.new_completion()
        if is_async:
            await completion.__aenter__()
        else:
            await self._calls.in_thread(completion.__enter__)
        job.completion, job.transaction = completion, completion.tx

    async def _answered(self, attempt: Attempt, job: Job[Any], value: Any) -> Ended:
        """Judge what the handler returned; nothing counts that was returned without the right to it."""
        reason = attempt.abort_reason
        if reason in LOST:
            raise LeaseLost(str(reason), "the answer came too late")
        if reason not in (None, "shutdown"):
            raise Aborted(str(reason))
        if job.handover is not None:
            return await self._handed_over(job.handover)
        finish = self._judge(attempt, value)
        if finish.next_blockers:
            database = self._place.database
            await database.read_async(self._continuation.check_waits(database.store, finish))
        completion = job.completion
        if completion is None or not completion.is_open:
            return Ended(finish)
        if not attempt.take_ending("slot"):
            raise Aborted("timeout")
        if completion.is_async:
            return Ended(finish, report=await completion.commit_async(finish))
        return Ended(finish, report=await self._calls.in_thread(completion.commit, finish))

    def _judge(
        self, attempt: Attempt, value: Any, encode: Callable[[Any], str] | None = None
    ) -> Finish:
        if isinstance(value, Continue):
            return self._continuation.finish(attempt, value)
        if isinstance(value, Snooze):
            return snoozed(attempt, self._place.id, value, self._place.clock.monotonic())
        return judge_value(attempt, self._place.id, value, encode)

    def _judge_handed_over(self, attempt: Attempt, value: Any) -> Op[Finish]:
        # What is handed over is not what the handler is annotated to return.
        finish = self._judge(attempt, value, encode_output)
        yield from self._continuation.check_waits(self._place.database.store, finish)
        return finish

    async def _handed_over(self, handover: Handover) -> Ended:
        """End with what the handler's own transaction wrote. Raises: TransactionAborted when it did not commit."""
        outcome = await handover.outcome()
        if outcome is None:
            raise undone()
        finish, report = outcome
        return Ended(finish, report=report)

    async def _failed(self, attempt: Attempt, job: Job[Any], error: BaseException) -> Ended:
        if _is_discarded(error):
            raise error
        await self._undo(job, error)
        if job.handover is not None:
            outcome = await job.handover.outcome()
            if outcome is not None:
                # The commit came before the error: the job is completed, whatever was raised after it.
                return Ended(outcome[0], report=outcome[1], error=error)
        reason = attempt.abort_reason
        if reason in LOST or reason == "timeout":
            return Ended(None, error=error, is_refused=isinstance(error, LeaseLost))
        if isinstance(error, LeaseLost) and attempt.ended_by == "slot":
            return Ended(None, error=error, is_refused=True)
        if reason is not None and isinstance(error, asyncio.CancelledError | Aborted):
            # Not the job's fault: it goes back as it came, if the token still stands.
            return Ended(finish_of(attempt, self._place.id, "snooze"), error=error)
        if await self._is_excused(attempt, error):
            return self._put_off(attempt, error)
        clock = self._place.clock
        judged = judge_error(attempt, self._place.id, error, clock.monotonic(), clock.random())
        return Ended(judged, error=error)

    async def _undo(self, job: Job[Any], error: BaseException) -> None:
        completion = job.completion
        if completion is None or not completion.is_open:
            return
        if completion.is_async:
            await completion.undo_async(error)
        else:
            await self._calls.in_thread(completion.undo, error)


def _is_discarded(error: BaseException) -> bool:
    """Whether the loop is gone and closes what it left behind; nothing can be awaited then."""
    if not isinstance(error, GeneratorExit):
        return False
    try:
        return asyncio.current_task() is None
    except RuntimeError:
        return True


def _waited_for_a_lock(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, says that a lock was waited for too long; in any driver's words."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, DatabaseBusy) or getattr(error, "sqlstate", None) == _LOCK_TIMEOUT:
            return True
        error = getattr(error, "orig", None) or error.__cause__ or error.__context__
    return False


def _one_each(answers: Any, count: int) -> Sequence[Any]:
    """Check a batch handler's answers. Raises: OutputInvalid."""
    if answers is None:
        return [None] * count
    if not isinstance(answers, list | tuple) or len(answers) != count:
        raise OutputInvalid(f"a batch handler answers with a list of {count}, or with None")
    return answers
