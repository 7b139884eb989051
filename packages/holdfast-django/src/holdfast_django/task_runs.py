"""The handlers of tasks: an attempt with Django's signals around it, on connections that Django keeps in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connections, transaction
from django.utils import timezone

from holdfast.client.views import AttemptInfo
from holdfast.core.errors import (
    Aborted,
    Busy,
    HoldfastError,
    InputUnreadable,
    LeaseLost,
    StepUnreadable,
    words_of,
)
from holdfast.core.outcome import Snooze
from holdfast.core.redaction import clean_error
from holdfast.core.sealing import SEALED_TEXT
from holdfast.worker.job import Job
from holdfast.worker.processes import ChildError, ChildFailure
from holdfast.worker.resolve_outcome import format_places, format_stack, has_attempts_left
from holdfast_django.application import database_alias, load_django_app
from holdfast_django.task_arguments import read_arguments, write_value
from holdfast_django.task_results import change_result, new_result, task_error, to_local_time
from holdfast_django.task_types import TASK_TYPES
from holdfast_django.tasks_api import (
    AnyResult,
    AnyTask,
    HoldfastContext,
    TaskResultStatus,
    task_backends,
    task_finished,
    task_started,
)

A = TypeVar("A")
T = TypeVar("T")

_NOT_FAILURES = (Snooze, Busy, Aborted, LeaseLost, StepUnreadable, asyncio.CancelledError)
_OUTER_FRAMES = ("holdfast_django.", "django.tasks.", "django_tasks.", "asgiref.")


class TaskRaised(ChildError):
    """What a task raised, recorded under the full path of its class, as Django's results name it."""


def run_task(job: Job[dict[str, Any]]) -> Any:
    """Run an attempt of a sync task, in a thread of the worker."""
    earlier = load_django_app().jobs.attempts(job.id) if job.attempt > 1 else []
    return TaskAttempt(job, earlier).run()


async def run_task_async(job: Job[dict[str, Any]]) -> Any:
    """Run an attempt of an async task, on the worker's loop."""
    app = load_django_app()
    earlier = await app.aio.jobs.attempts(job.id) if job.attempt > 1 else []
    # A test whose transaction nobody else sees runs everything in its own thread.
    caller = getattr(app.database, "caller", None)
    if caller is not None:
        return await asyncio.wrap_future(caller.submit(TaskAttempt(job, earlier).run))
    # As Django does for a request: what this task asks of the database waits for no other task's thread.
    async with ThreadSensitiveContext():  # type: ignore[no-untyped-call]
        return await TaskAttempt(job, earlier).run_async()


class TaskAttempt:
    """One attempt of a task: its result as it changes, and what is sent of that."""

    def __init__(self, job: Job[dict[str, Any]], earlier: Sequence[AttemptInfo]) -> None:
        self._job = job
        self._task: AnyTask = TASK_TYPES.task_of(job.type, job.input)
        try:
            self._args, self._named = read_arguments(job.input)
        except LookupError as error:
            raise InputUnreadable(str(error), job_id=str(job.id), help="") from error
        self._result = self._running_result(earlier)

    def run(self) -> Any:
        """Call the task; an async one on a loop of its own."""
        try:
            self._send(task_started)
            is_atomic = getattr(self._task, "atomic", False)
            value, stored = self._call_atomic() if is_atomic else self._call()
        except _NOT_FAILURES:
            raise
        except (Exception, SystemExit) as error:
            raise self._on_failure(error) from error
        self._on_success(value)
        return stored

    async def run_async(self) -> Any:
        """Call an async task."""
        try:
            await sync_to_async(self._send)(task_started)
            value = await self._task.acall(*self._arguments(), **self._named)
            stored = write_value(value)
        except _NOT_FAILURES:
            await sync_to_async(connections.close_all)()
            raise
        except (Exception, SystemExit) as error:
            raise await sync_to_async(_call_handling)(error, self._on_failure) from error
        await sync_to_async(_call_and_close)(self._on_success, value)
        return stored

    def _call(self) -> tuple[Any, Any]:
        """Return what the task returned, and the same as it is stored."""
        value = self._task.call(*self._arguments(), **self._named)
        return value, write_value(value)

    def _call_atomic(self) -> tuple[Any, Any]:
        """Complete the job with the last statement of the task's own transaction."""
        alias = database_alias()
        with transaction.atomic(using=alias):
            value, stored = self._call()
            self._job.complete(tx=connections[alias], output=stored)
        return value, stored

    def _arguments(self) -> list[Any]:
        if not self._task.takes_context:
            return self._args
        return [HoldfastContext(task_result=self._result, job=self._job), *self._args]

    def _running_result(self, earlier: Sequence[AttemptInfo]) -> AnyResult:
        job, now = self._job, timezone.now()
        failed = [each for each in earlier if each.kind != "snooze"]
        first = failed[0].started_at if failed else None
        result = new_result(self._task, self._args, self._named, self._task.backend)
        change_result(
            result,
            id=str(job.id),
            status=TaskResultStatus.RUNNING,
            enqueued_at=to_local_time(job.created_at),
            started_at=to_local_time(first) or now,
            last_attempted_at=now,
            errors=[task_error(each.error) for each in failed if each.error],
            worker_ids=[*(each.worker or "" for each in failed), job.worker],
        )
        return result

    def _on_success(self, value: Any) -> None:
        change_result(
            self._result,
            status=TaskResultStatus.SUCCESSFUL,
            finished_at=timezone.now(),
            _return_value=value,
        )
        self._send(task_finished)

    def _on_failure(self, error: BaseException) -> TaskRaised:
        """Return the error as it is recorded; unless there will be another attempt, the task has finished."""
        error.__traceback__ = _without_outer_frames(error.__traceback__)
        may_retry = (
            getattr(self._task, "retry", None) is not None
            and getattr(error, "retryable", True) is not False
        )
        raised = TaskRaised(self._describe(error, may_retry))
        self._result.errors.append(task_error(clean_error(raised.kind, str(raised), raised.stack)))
        is_over = not may_retry or not has_attempts_left(self._job.attempt_state)
        change_result(
            self._result, status=TaskResultStatus.FAILED if is_over else TaskResultStatus.READY
        )
        if is_over:
            change_result(self._result, finished_at=timezone.now())
            self._send_failed(raised)
        return raised

    def _describe(self, error: BaseException, may_retry: bool) -> ChildFailure:
        """Describe what was raised; of a sealed task by its class and places only, as it is recorded."""
        if self._job.attempt_state.sealed:
            return ChildFailure(path_of(error), SEALED_TEXT, format_places(error), may_retry)
        message = error.message if isinstance(error, HoldfastError) else words_of(error)
        return ChildFailure(path_of(error), message, format_stack(error), may_retry)

    def _send_failed(self, raised: TaskRaised) -> None:
        """Send that the task has failed. Django's log writes the exception that is handled meanwhile, text and all."""
        if not self._job.attempt_state.sealed:
            self._send(task_finished)
            return
        try:
            raise raised from None
        except TaskRaised:
            self._send(task_finished)

    def _send(self, signal: Any) -> None:
        """Send a signal; a receiver that fails is logged by Django and costs the task nothing."""
        sender = type(task_backends[self._task.backend])
        signal.send_robust(sender, task_result=self._result)


def path_of(error: BaseException) -> str:
    """Return the path of an error's class; those of Python itself are known by their name."""
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def _call_handling(error: BaseException, function: Callable[[BaseException], T]) -> T:
    """Call a function while an error is handled, in this thread too: Django's log reads which one that is."""
    try:
        raise error
    except BaseException:
        return _call_and_close(function, error)


def _call_and_close(function: Callable[[A], T], argument: A) -> T:
    """Call a function, and close the connections of a thread that ends with its task."""
    try:
        return function(argument)
    finally:
        connections.close_all()


def _without_outer_frames(frames: TracebackType | None) -> TracebackType | None:
    """Leave out how the task came to be called."""
    first = frames
    while first is not None and first.tb_frame.f_globals.get("__name__", "").startswith(
        _OUTER_FRAMES
    ):
        first = first.tb_next
    return first or frames
