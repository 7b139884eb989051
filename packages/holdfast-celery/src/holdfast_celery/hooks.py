"""A call of a task as an attempt of it: with the hooks of its base class and the signals around it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import Aborted, Busy, InputUnreadable, LeaseLost
from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast.worker.attempt import LOST
from holdfast_celery.exceptions import ExceptionInfo, TaskRetry
from holdfast_celery.scope import TaskRequest, current_request
from holdfast_celery.signals import (
    task_failure,
    task_internal_error,
    task_postrun,
    task_prerun,
    task_retry,
    task_success,
)

if TYPE_CHECKING:
    from holdfast_celery.tasks import CeleryTask

_log = logging.getLogger("holdfast.celery")

NOT_FAILURES = (Snooze, Busy, Aborted, LeaseLost, InputUnreadable)
"""What a task may raise that the worker understands by itself."""


def call_with(task: CeleryTask, request: TaskRequest) -> Any:
    """Call the function as the attempt that a request describes, with the hooks and signals around it."""
    token = current_request.set(request)
    named = {"task_id": request.id, "args": request.args, "kwargs": request.kwargs}
    id, args, kwargs = str(request.id), request.args, request.kwargs
    try:
        task_prerun.send(task, task=task, **named)
        try:
            task.before_start(id, args, kwargs)
            value = task.enter(*args, **kwargs)
            _check_counts(request)
        except NOT_FAILURES:
            raise
        except (Exception, SystemExit) as error:
            _check_counts(request)
            # sys.exit() ends the task, not the worker.
            status, value = _on_error(task, error, request)
            _end(task, request, status, value)
            raise
        if not isinstance(value, Cancel | Continue | Snooze):
            _call_hook(task, task.on_success, value, id, args, kwargs)
            task_success.send(task, result=value)
            _end(task, request, "SUCCESS", value)
        return value
    finally:
        current_request.reset(token)


def _check_counts(request: TaskRequest) -> None:
    """Let no one be told of an attempt that was revoked or ran too long: what it did is dropped.

    Raises: LeaseLost, Aborted.
    """
    reason = None if request.job is None else request.job.abort_reason
    if reason in LOST:
        raise LeaseLost(str(reason), "the result came too late")
    if reason == "timeout":
        raise Aborted(reason)


def _on_error(
    task: CeleryTask, error: BaseException, request: TaskRequest
) -> tuple[str, BaseException]:
    """Call the hook of an error, and send its signal."""
    einfo = ExceptionInfo(error)
    id, args, kwargs = str(request.id), request.args, request.kwargs
    if isinstance(error, TaskRetry) or task.options.is_retried(error, request.retries):
        reason = error if isinstance(error, TaskRetry) else TaskRetry(exc=error)
        cause = reason.exc if isinstance(reason.exc, Exception) else reason
        _call_hook(task, task.on_retry, cause, id, args, kwargs, einfo)
        task_retry.send(task, request=request, reason=reason, einfo=einfo)
        return "RETRY", error
    _call_hook(task, task.on_failure, error, id, args, kwargs, einfo)
    task_failure.send(
        task,
        task_id=id,
        exception=error,
        args=args,
        kwargs=kwargs,
        traceback=error.__traceback__,
        einfo=einfo,
    )
    return "FAILURE", error


def _end(task: CeleryTask, request: TaskRequest, status: str, value: Any) -> None:
    id, args, kwargs = str(request.id), request.args, request.kwargs
    # Celery calls it once the task has returned, and not after an attempt that is retried; the signal comes after each.
    if status != "RETRY":
        _call_hook(task, task.after_return, status, value, id, args, kwargs, None)
    task_postrun.send(
        task, task_id=id, task=task, args=args, kwargs=kwargs, retval=value, state=status
    )


def _call_hook(task: CeleryTask, hook: Callable[..., Any], *args: Any) -> None:
    """Call a hook after the task; one that fails is logged, and changes nothing of the outcome."""
    try:
        hook(*args)
    except Exception as error:
        _log.exception("%s of task %s failed", hook.__name__, task.name)
        send_internal_error(task, error, task.request)


def send_internal_error(task: CeleryTask, error: Exception, request: TaskRequest) -> None:
    """Send the signal of an error that is not the task's own."""
    task_internal_error.send(
        task,
        task_id=request.id,
        args=request.args,
        kwargs=request.kwargs,
        request=request,
        exception=error,
        traceback=error.__traceback__,
        einfo=ExceptionInfo(error),
    )
