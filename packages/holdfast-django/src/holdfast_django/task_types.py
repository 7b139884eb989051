"""Tasks as job types: one for each task and queue, named after the task's path.

A type is `shop.tasks.send`, or `mail:shop.tasks.send` in a queue other than the default, so that `--types 'mail:*'`
makes a worker of a queue. The input is `{"args": […], "kwargs": {…}}`, and what differs from the task as declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from inspect import iscoroutinefunction
from threading import Lock
from typing import TYPE_CHECKING, Any

from django.utils.module_loading import import_string

from holdfast.core.errors import InvalidName
from holdfast.core.registry import TypeOptions, check_name, is_name
from holdfast.core.retry import Retry
from holdfast_django.application import on_load
from holdfast_django.task_arguments import type_options
from holdfast_django.tasks_api import (
    DEFAULT_TASK_BACKEND_ALIAS,
    DEFAULT_TASK_QUEUE_NAME,
    AnyTask,
    InvalidTask,
    Task,
    task_backends,
)

if TYPE_CHECKING:
    from holdfast.app import Holdfast

Handler = Callable[..., Any]

CUT_OFF_RETRY = Retry(max_attempts=3)
"""Of tasks without a policy of their own: their exceptions are final, and attempts that were cut off are made again."""


class TaskTypes:
    """The tasks that this process knows, and the job types that run them."""

    def __init__(self) -> None:
        self._tasks: dict[str, AnyTask] = {}
        self._paths: dict[str, str] = {}
        self._registering = Lock()

    def declare(self, task: AnyTask) -> None:
        """Remember a task as it was declared; what `using` makes of it changes nothing. Raises: InvalidTask."""
        path = task.module_path
        known = self._tasks.get(path)
        if known is not None and known.func is task.func:
            return
        names = {type_name(path, queue) for queue in _all_queues()}
        try:
            own = check_name(type_name(path, task.queue_name))
        except InvalidName as error:
            raise InvalidTask(
                f"{path} in queue {task.queue_name!r} cannot be the name of a job type: {error.fix}."
            ) from error
        self._tasks[path] = task
        # The system check reports queues that cannot be part of a name.
        self._paths |= dict.fromkeys([own, *filter(is_name, sorted(names))], path)

    def name_of(self, task: AnyTask) -> str:
        """Return the job type of a task: that of its queue, or of the one that it was declared in if any is allowed."""
        name = type_name(task.module_path, task.queue_name)
        if name in self._paths:
            return name
        return type_name(task.module_path, self._tasks[task.module_path].queue_name)

    def payload_of(self, task: AnyTask, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the input of a task's job, with its arguments as they are stored."""
        payload: dict[str, Any] = dict(arguments)
        if task.priority != self._tasks[task.module_path].priority:
            payload["priority"] = task.priority
        if task.backend != DEFAULT_TASK_BACKEND_ALIAS:
            payload["backend"] = task.backend
        if type_name(task.module_path, task.queue_name) not in self._paths:
            payload["queue"] = task.queue_name
        return payload

    def task_of(self, name: str, payload: Mapping[str, Any]) -> AnyTask:
        """Return the task that a job was enqueued as. Raises: ImportError when its code is gone."""
        queue, _, path = name.rpartition(":")
        found = self._tasks.get(path)
        if found is None:
            found = import_string(path)
            if not isinstance(found, Task):
                raise ImportError(f"{path} is not a task")
        wanted = {
            "queue_name": payload.get("queue", queue or DEFAULT_TASK_QUEUE_NAME),
            "priority": payload.get("priority", found.priority),
            "backend": payload.get("backend", DEFAULT_TASK_BACKEND_ALIAS),
        }
        changes = {name: value for name, value in wanted.items() if getattr(found, name) != value}
        return found.using(**changes) if changes else found

    def register(self, app: Holdfast) -> None:
        """Register the job types that an application does not have yet."""
        with self._registering:
            for name, path in list(self._paths.items()):
                if name not in app.registry:
                    task = self._tasks[path]
                    options: TypeOptions = {"retry": CUT_OFF_RETRY, **type_options(task)}
                    app.job(name, **options)(_handler(task))


def type_name(path: str, queue: str) -> str:
    """Return the name of a task's job type in a queue."""
    return path if queue == DEFAULT_TASK_QUEUE_NAME else f"{queue}:{path}"


def _all_queues() -> Iterator[str]:
    """The queues of every backend: a worker must know a task in each that `using` may put it into."""
    for each in task_backends.settings.values():
        yield from each.get("QUEUES", [DEFAULT_TASK_QUEUE_NAME])


def _handler(task: AnyTask) -> Handler:
    from holdfast_django.task_runs import run_task, run_task_async

    return run_task_async if iscoroutinefunction(task.func) else run_task


TASK_TYPES = TaskTypes()
on_load(TASK_TYPES.register)
