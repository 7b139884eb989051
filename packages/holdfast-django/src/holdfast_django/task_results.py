"""A task's job as Django's `TaskResult`: its state, its attempts with their workers, and what they failed of."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from django.conf import settings
from django.utils import timezone

from holdfast.client.views import AttemptInfo, JobInfo
from holdfast.core import errors
from holdfast.core.records import State
from holdfast_django.task_arguments import read_arguments
from holdfast_django.task_types import TASK_TYPES
from holdfast_django.tasks_api import (
    DEFAULT_TASK_BACKEND_ALIAS,
    AnyResult,
    AnyTask,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from holdfast_values.tagged_values import untag_value

if TYPE_CHECKING:
    from holdfast.app import Holdfast

T = TypeVar("T")

_STATUS: Mapping[State, TaskResultStatus] = {
    "blocked": TaskResultStatus.READY,
    "pending": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "completed": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}
_CLASS = re.compile(r"[A-Za-z_][\w.]*")
_WHOLE = "Traceback (most recent call last):"
_NO_ATTEMPT = "snooze"
"""What is remembered of a job that asked to run later; it was no attempt."""


def new_result(
    task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any], backend: str
) -> AnyResult:
    """Return the result of a task that is about to be enqueued."""
    # Django would make JSON of the arguments, which is for the database alone.
    result: AnyResult = TaskResult(
        task=task,
        id="",
        status=TaskResultStatus.READY,
        enqueued_at=None,
        started_at=None,
        last_attempted_at=None,
        finished_at=None,
        args=[],
        kwargs={},
        backend=backend,
        errors=[],
        worker_ids=[],
    )
    change_result(result, args=list(args), kwargs=dict(kwargs))
    return result


def read_result(app: Holdfast, connection: Any, result_id: str, backend: str) -> AnyResult:
    """Read a task's result on Django's connection. Raises: TaskResultDoesNotExist."""
    try:
        job = app.jobs.get(str(result_id), tx=connection)
        has_history = job.attempt > 0 or job.state not in ("pending", "blocked")
        attempts = app.jobs.attempts(job.id, tx=connection) if has_history else []
    except (errors.InvalidId, errors.JobNotFound) as error:
        raise TaskResultDoesNotExist(result_id) from error
    if not is_task(job.input) or job.input.get("backend", DEFAULT_TASK_BACKEND_ALIAS) != backend:
        raise TaskResultDoesNotExist(result_id)
    return result_of(job, attempts, backend)


def is_task(payload: object) -> bool:
    """Whether a job's input is that of a task."""
    return isinstance(payload, dict) and {"args", "kwargs"} <= payload.keys()


def result_of(job: JobInfo, attempts: Sequence[AttemptInfo], backend: str) -> AnyResult:
    """Return a job with its attempts as a result. Raises: TaskResultDoesNotExist when the task's code is gone."""
    try:
        task = TASK_TYPES.task_of(job.type, job.input)
    except ImportError as error:
        raise TaskResultDoesNotExist(f"{job.id}: its task {job.type} is gone") from error
    if job.planned_at is not None:
        task = task.using(run_after=to_local_time(job.planned_at))
    result = new_result(task, *_readable(read_arguments, job.input), backend)
    counted = [each for each in attempts if each.kind != _NO_ATTEMPT]
    first = counted[0].started_at if counted else None
    last = counted[-1].started_at if counted else None
    change_result(
        result,
        id=str(job.id),
        status=_STATUS[job.state],
        enqueued_at=to_local_time(job.created_at),
        started_at=to_local_time(first or job.started_at),
        last_attempted_at=to_local_time(job.started_at or last),
        finished_at=to_local_time(job.finished_at),
        errors=_errors(job, counted),
        worker_ids=_workers(job, counted),
        _return_value=_readable(untag_value, job.output),
    )
    return result


def _readable(read: Callable[[Any], T], stored: Any) -> T:
    """Return what was stored as it was given. Raises: OutputInvalid for an enum that is not there."""
    try:
        return read(stored)
    except LookupError as error:
        raise errors.OutputInvalid(f"the result cannot be read: {error}", help="") from error


def change_result(result: AnyResult, **values: Any) -> None:
    """Set fields of a result, which is frozen for everybody else."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def _workers(job: JobInfo, attempts: Sequence[AttemptInfo]) -> list[str]:
    """The worker of each attempt; one that goes on or completed the job is not among those that did not."""
    workers = [each.worker or "" for each in attempts]
    if job.state in ("running", "completed", "cancelled") and job.worker:
        workers.append(job.worker)
    return workers


def _errors(job: JobInfo, attempts: Sequence[AttemptInfo]) -> list[TaskError]:
    texts = [each.error for each in attempts if each.error]
    if job.error and job.error not in texts:
        texts.append(job.error)
    return [task_error(each) for each in texts]


def task_error(text: str) -> TaskError:
    """Return a recorded error as Django has it: the class by its path, and the text in the order of Python's."""
    return TaskError(exception_class_path=class_path(text), traceback=as_traceback(text))


def as_traceback(text: str) -> str:
    """Return a recorded error, which begins with what was raised, as a traceback, which ends with it."""
    if _WHOLE in text:
        return text[text.index(_WHOLE) :]
    raised, frames, stack = text.partition("\n  File ")
    return f"{_WHOLE}\n  File {stack}{raised}\n" if frames else f"{raised}\n"


def class_path(text: str) -> str:
    """Return the importable path of the exception that an error's text begins with."""
    found = _CLASS.match(text)
    name = found.group().rstrip(".") if found else ""
    if "." in name:
        return name
    for module in (builtins, errors):
        kind = getattr(module, name, None)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            return f"{module.__name__}.{name}"
    return "builtins.Exception"


def to_local_time(moment: datetime | None) -> datetime | None:
    """Return a time as Django's settings have it."""
    if moment is None or settings.USE_TZ:
        return moment
    return timezone.make_naive(moment)


def aware(moment: datetime | None) -> datetime | None:
    """Return a time with its zone; a naive one is in the project's."""
    if moment is None or timezone.is_aware(moment):
        return moment
    return timezone.make_aware(moment)
