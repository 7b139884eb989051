"""Runs one attempt: calls the handler in its mode and colour, and turns what comes of it into a write."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holdfast.core.errors import Aborted, LeaseLost, OutputInvalid
from holdfast.core.jobtype import JobType
from holdfast.core.model import Finish
from holdfast.core.outcome import Continue
from holdfast.ops.finish import FinishReport
from holdfast.storage.database import Database
from holdfast.worker.attempt import LOST, Attempt
from holdfast.worker.context import JobContext, current_job
from holdfast.worker.continuing import Continuation
from holdfast.worker.job import Job
from holdfast.worker.judge import finish_of, judge_error, judge_value
from holdfast.worker.middleware import Call, Middleware, wrapped
from holdfast.worker.processes import ProcessHandlers
from holdfast.worker.stages import Completion


class Ended:
    """How an attempt ended: the write still to be made, or the report of one made in the handler's own transaction."""

    __slots__ = ("error", "finish", "report")

    def __init__(
        self,
        finish: Finish | None,
        report: FinishReport | None = None,
        error: BaseException | None = None,
    ) -> None:
        self.finish = finish
        self.report = report
        self.error = error


class Execution:
    """Knows how to run every job type of a worker."""

    def __init__(
        self,
        worker: str,
        database: Database,
        types: Mapping[str, JobType],
        continuation: Continuation,
        middlewares: Sequence[Middleware],
        threads: ThreadPoolExecutor,
        processes: ProcessHandlers,
        random: Callable[[], float],
    ) -> None:
        self._worker = worker
        self._database = database
        self._continuation = continuation
        self._threads = threads
        self._processes = processes
        self._random = random
        self._calls: dict[str, Call] = {
            name: wrapped(self._call(each), middlewares) for name, each in types.items()
        }

    async def run(self, attempt: Attempt) -> Ended:
        """Run the handler to its end, whatever that is; never raises but when the slot itself is cancelled."""
        claimed = attempt.claimed
        job: Job[Any] = Job(attempt, self._worker, self._database)
        token = current_job.set(
            JobContext(
                claimed.id,
                claimed.type,
                claimed.chain_id,
                self._worker,
                claimed.attempt,
                claimed.trace,
            )
        )
        try:
            if claimed.blockers:
                await self._read_blockers(job, claimed.id)
            if attempt.type.atomic:
                await self._open(job, attempt.type)
            value = await self._calls[claimed.type](job)
            if attempt.abort_reason not in (None, "shutdown"):
                raise Aborted(str(attempt.abort_reason))
            finish = self._judge(attempt, value)
            if job.completion is not None and job.completion.is_open:
                return Ended(finish, await self._commit(job, finish))
            return Ended(finish)
        except BaseException as error:
            return await self._failed(attempt, job, error)
        finally:
            current_job.reset(token)

    async def _read_blockers(self, job: Job[Any], job_id: str) -> None:
        op = self._database.store.blockers.of_jobs([job_id])
        job.see_blockers(await self._database.read_async(op))

    async def _open(self, job: Job[Any], type: JobType) -> None:
        """Open an atomic handler's transaction in the handler's colour, around middlewares and all."""
        completion = Completion(self._database)
        if inspect.iscoroutinefunction(type.handler):
            await completion.__aenter__()
        else:
            await self._in_thread(completion.__enter__)
        job.completion, job.transaction = completion, completion.tx

    async def _failed(self, attempt: Attempt, job: Job[Any], error: BaseException) -> Ended:
        if job.completion is not None:
            await self._undo(job, error)
        if isinstance(error, asyncio.CancelledError):
            if attempt.abort_reason is None:
                raise error
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
        if attempt.abort_reason in LOST or isinstance(error, LeaseLost) or attempt.settled:
            return Ended(None, error=error)
        if attempt.abort_reason in ("shutdown", "error") and isinstance(
            error, asyncio.CancelledError | Aborted
        ):
            # Not the job's fault: it goes back as it came, if the token still stands.
            return Ended(finish_of(attempt, self._worker, "snooze"), error=error)
        if not isinstance(error, Exception | asyncio.CancelledError):
            raise error
        return Ended(judge_error(attempt, self._worker, error, self._random()), error=error)

    def _judge(self, attempt: Attempt, value: Any) -> Finish:
        if isinstance(value, Continue):
            return self._continuation.finish(attempt, value)
        return judge_value(attempt, self._worker, value)

    async def _commit(self, job: Job[Any], finish: Finish) -> FinishReport:
        assert job.completion is not None
        if job.completion.is_async:
            return await job.completion.commit_async(finish)
        report: FinishReport = await self._in_thread(job.completion.commit, finish)
        return report

    async def _undo(self, job: Job[Any], error: BaseException) -> None:
        assert job.completion is not None
        if job.completion.is_async:
            await job.completion.undo_async(error)
        else:
            await self._in_thread(job.completion.undo, error)

    async def run_batch(self, attempts: list[Attempt]) -> list[Ended]:
        """Run a batch handler once for several attempts; an answer per job, or one error for all."""
        jobs: list[Job[Any]] = [Job(each, self._worker, self._database) for each in attempts]
        try:
            answers = await self._calls[attempts[0].type.name](jobs)  # type: ignore[arg-type]
            if answers is None:
                answers = [None] * len(jobs)
            if not isinstance(answers, list | tuple) or len(answers) != len(jobs):
                raise OutputInvalid(
                    f"a batch handler answers with a list of {len(jobs)}, or with None"
                )
        except BaseException as error:
            return [
                await self._failed(each, job, error)
                for each, job in zip(attempts, jobs, strict=True)
            ]
        return [
            await self._answered(each, job, answer)
            for each, job, answer in zip(attempts, jobs, answers, strict=True)
        ]

    async def _answered(self, attempt: Attempt, job: Job[Any], answer: Any) -> Ended:
        try:
            if isinstance(answer, BaseException):
                raise answer
            if attempt.abort_reason not in (None, "shutdown"):
                raise Aborted(str(attempt.abort_reason))
            return Ended(self._judge(attempt, answer))
        except Exception as error:
            return await self._failed(attempt, job, error)

    def _call(self, type: JobType) -> Call:
        handler = type.handler
        if handler is None:
            raise ValueError(f"job type {type.name} has no handler here")
        if type.executor == "process":
            return self._processes.call(type)
        if inspect.iscoroutinefunction(handler):
            return handler

        async def call(job: Job[Any]) -> Any:
            return await self._in_thread(handler, job)

        return call

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        future = loop.run_in_executor(self._threads, context.run, function, *arguments)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # A thread cannot be stopped from outside: the slot stays taken until the handler obeys its signal.
            await asyncio.wait([future])
            raise
