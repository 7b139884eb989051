"""Django's tasks framework: `django.tasks` from Django 6.0 on, the backport `django_tasks` below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import django
from holdfast.core.errors import MissingExtra

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import DEFAULT_TASK_BACKEND_ALIAS, DEFAULT_TASK_QUEUE_NAME, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import (
        DEFAULT_TASK_PRIORITY,
        Task,
        TaskContext,
        TaskError,
        TaskResult,
        TaskResultStatus,
    )
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist, TaskResultMismatch
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
else:
    try:
        from django_tasks import DEFAULT_TASK_BACKEND_ALIAS, DEFAULT_TASK_QUEUE_NAME, task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import (
            DEFAULT_TASK_PRIORITY,
            Task,
            TaskContext,
            TaskError,
            TaskResult,
            TaskResultStatus,
        )
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
        from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
        from django_tasks.signals import task_enqueued, task_finished, task_started
        from django_tasks.utils import normalize_json
    except ImportError as error:
        raise MissingExtra(
            f"Django {django.get_version()} has no tasks framework of its own",
            help="pip install django-tasks, or use Django 6.0 or newer",
        ) from error

if TYPE_CHECKING:
    AnyContext = TaskContext[..., Any]
    AnyTask = Task[..., Any]
    AnyResult = TaskResult[..., Any]
else:
    AnyContext, AnyTask, AnyResult = TaskContext, Task, TaskResult


@dataclass(frozen=True, kw_only=True)
class HoldfastContext(AnyContext):  # type: ignore[misc]  # the stubs do not say that it is frozen
    """What a task with `takes_context=True` gets: Django's context, and the job."""

    job: Any
    """A `Job`, of a sync task a `SyncJob`: its steps and waits make the task a durable function."""


__all__ = [
    "DEFAULT_TASK_BACKEND_ALIAS",
    "DEFAULT_TASK_PRIORITY",
    "DEFAULT_TASK_QUEUE_NAME",
    "AnyResult",
    "AnyTask",
    "BaseTaskBackend",
    "HoldfastContext",
    "InvalidTask",
    "Task",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultMismatch",
    "TaskResultStatus",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
