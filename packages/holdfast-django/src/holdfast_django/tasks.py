"""The backend of Django's tasks framework, and tasks with options that Django has no word for.

TASKS = {"default": {"BACKEND": "holdfast_django.tasks.HoldfastBackend"}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from typing import Any, Concatenate, Literal, ParamSpec, TypedDict, TypeVar, Unpack, cast, overload

from django.core.checks import CheckMessage
from django.db import connections, transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from holdfast.client.start_options import StartOptions
from holdfast.core.codec import TypeCodec
from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import HoldfastError
from holdfast.core.flow import Fair, Limit, Ordered, Rate, flow_of
from holdfast.core.keep import Keep, keep_of
from holdfast.core.retry import Retry
from holdfast_django.application import database_alias, load_django_app
from holdfast_django.task_arguments import (
    argument_names,
    bound_arguments,
    read_arguments,
    type_options,
    write_arguments,
)
from holdfast_django.task_results import aware, change_result, new_result, read_result
from holdfast_django.task_types import TASK_TYPES
from holdfast_django.tasks_api import (
    DEFAULT_TASK_BACKEND_ALIAS,
    DEFAULT_TASK_PRIORITY,
    DEFAULT_TASK_QUEUE_NAME,
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    HoldfastContext,
    InvalidTask,
    Task,
    TaskResult,
    task_enqueued,
)

__all__ = ["DjangoTaskOptions", "HoldfastBackend", "HoldfastContext", "HoldfastTask", "task"]

P = ParamSpec("P")
R = TypeVar("R")


class DjangoTaskOptions(TypedDict, total=False):
    """The options that Django has no word for; `by=` in the last four names an argument of the task."""

    retry: Retry | None
    """When a task that raised is retried; without it, the first exception is final."""

    key: str | None
    """A template of the arguments, as "invoice:{number}": tasks with the same key share one run until it has ended."""

    timeout: Duration | None
    """How long an attempt may take."""

    expires: Duration | None
    """How long a task may wait for its start: after that it is cancelled."""

    keep: Keep | Duration | None
    """How long a task is kept after its end; 0 deletes it, with its result, when it completes."""

    atomic: bool
    """Whether the task runs in a transaction of Django's that also completes it."""

    limits: Sequence[Limit]
    """How many tasks run at once across all workers."""

    rates: Sequence[Rate]
    """How many tasks start within any period across all workers."""

    fair: Fair | None
    """Keys take turns."""

    ordered: Ordered | None
    """Tasks of one key run one at a time, first in, first out."""

    sealed: bool
    """Whether arguments and return value are stored encrypted, and exceptions without their text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldfastTask(AnyTask):
    """A task with Holdfast's options, which `DjangoTaskOptions` explains."""

    retry: Retry | None = None
    key: str | None = None
    timeout: Duration | None = None
    expires: Duration | None = None
    keep: Keep | Duration | None = None
    atomic: bool = False
    limits: Sequence[Limit] = ()
    rates: Sequence[Rate] = ()
    fair: Fair | None = None
    ordered: Ordered | None = None
    sealed: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Reduce a task to its path and what `using` has changed, as Django does when a task is copied or sent."""
        names = ("priority", "queue_name", "backend", "run_after")
        return _rebuilt, (self.module_path, {name: getattr(self, name) for name in names})


def _rebuilt(path: str, changes: dict[str, Any]) -> HoldfastTask:
    """Return the task at a path, with what `using` had changed. Raises: ValueError when its code is gone."""
    try:
        found = import_string(path)
    except ImportError as error:
        raise ValueError(f"Expected {path!r} to point to a Task instance.") from error
    if not isinstance(found, HoldfastTask):
        raise ValueError(f"Expected {path!r} to point to a Task instance.")
    return replace(found, **changes)


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(
    *,
    priority: int = ...,
    queue_name: str = ...,
    backend: str = ...,
    takes_context: Literal[False] = False,
    **options: Unpack[DjangoTaskOptions],
) -> Callable[[Callable[P, R]], Task[P, R]]: ...
@overload
def task(
    *,
    priority: int = ...,
    queue_name: str = ...,
    backend: str = ...,
    takes_context: Literal[True],
    **options: Unpack[DjangoTaskOptions],
) -> Callable[[Callable[Concatenate[HoldfastContext, P], R]], Task[P, R]]: ...
def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    priority: int = DEFAULT_TASK_PRIORITY,
    queue_name: str = DEFAULT_TASK_QUEUE_NAME,
    backend: str = DEFAULT_TASK_BACKEND_ALIAS,
    takes_context: bool = False,
    **options: Unpack[DjangoTaskOptions],
) -> Any:
    """Declare a task, as Django's own decorator does, with the options of `DjangoTaskOptions`.

    Django 6.0 has no other way to give them. Raises: InvalidTask.
    """

    def declare(decorated: Callable[..., Any]) -> HoldfastTask:
        return HoldfastTask(
            func=decorated,
            priority=priority,
            queue_name=queue_name,
            backend=backend,
            run_after=None,
            takes_context=takes_context,
            **options,
        )

    return declare if function is None else declare(function)


class HoldfastBackend(BaseTaskBackend):
    """Enqueues tasks in the caller's transaction; `manage.py holdfast worker` runs them."""

    task_class = HoldfastTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: AnyTask) -> None:
        """Check a task and remember it for workers; Django calls this when a task is declared. Raises: InvalidTask."""
        super().validate_task(task)
        _check_options(task)
        TASK_TYPES.declare(task)

    def enqueue(
        self, task: Task[P, R], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult[P, R]:
        """Write a task in the caller's transaction, or in one of its own where none is open.

        With a key that is in use, the task that has it is returned. Raises: InvalidTask, TypeError for arguments that
        JSON does not have, SealKeyMissing for a sealed task, and the errors of `Holdfast.start`.
        """
        self.validate_task(task)
        arguments = write_arguments(args, kwargs)
        given = read_arguments(arguments)
        result = cast("TaskResult[P, R]", new_result(task, *given, self.alias))
        app, alias = load_django_app(), database_alias()
        with _in_transaction(alias):
            chain = app.start(
                connections[alias],
                TASK_TYPES.name_of(task),
                TASK_TYPES.payload_of(task, arguments),
                **_start_options(task, result),
            )
            if chain.deduplicated:
                return cast("TaskResult[P, R]", self.get_result(str(chain.id)))
        change_result(result, id=str(chain.id), enqueued_at=timezone.now())
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> AnyResult:
        """Read a task on Django's connection, inside its transaction if one is open.

        Raises: TaskResultDoesNotExist; SealError for a sealed task that this process cannot open.
        """
        return read_result(load_django_app(), connections[database_alias()], result_id, self.alias)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Check the settings of this backend."""
        from holdfast_django.system_checks import check_backend

        return list(check_backend(self))


def priority_level(priority: int) -> int:
    """Return the level, of 0 for the most urgent to 9, of a priority from -100 to 100: 0 is 5, 100 is 0, -100 is 9."""
    if priority > 0:
        return 5 - -(-priority // 20)
    return 5 + -(priority // 25)


def _start_options(task: AnyTask, result: AnyResult) -> StartOptions:
    """Return what is not usual: a start without options takes a shorter way."""
    options: StartOptions = {}
    if task.priority != DEFAULT_TASK_PRIORITY:
        options["priority"] = priority_level(task.priority)
    if task.run_after is not None:
        options["at"] = aware(task.run_after)
    if getattr(task, "key", None) is not None:
        options["key"] = _key_of(task, result.args, result.kwargs)
    return options


def _in_transaction(alias: str) -> AbstractContextManager[object]:
    """Open a transaction unless the caller has one: a savepoint of ours would cost two statements more."""
    connection = connections[alias]
    if connection.in_atomic_block or not connection.get_autocommit():
        return nullcontext()
    return transaction.atomic(using=alias)


def _check_options(task: AnyTask) -> None:
    """Refuse options that could have no effect. Raises: InvalidTask."""
    if not isinstance(task, HoldfastTask):
        return
    if task.atomic and iscoroutinefunction(task.func):
        raise InvalidTask("atomic=True needs a sync task, because Django's transactions are sync.")
    if not isinstance(task.sealed, bool):
        raise InvalidTask(f"sealed must be True or False, not {repr(task.sealed)[:60]}.")
    if task.retry is not None and not isinstance(task.retry, Retry):
        raise InvalidTask(f"retry must be a holdfast.Retry(), not {repr(task.retry)[:60]}.")
    if task.key is not None:
        _check_template(task)
    try:
        for span in (task.timeout, task.expires):
            if span is not None:
                milliseconds(span)
        keep_of(task.keep)
        flow_of(task.module_path, TypeCodec(Any), dict(type_options(task)))
    except HoldfastError as error:
        raise InvalidTask(f"{task.module_path}: {error.message}.") from error


def _check_template(task: HoldfastTask) -> None:
    names = argument_names(task)
    try:
        str(task.key).format(**dict.fromkeys(names, ""))
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise InvalidTask(
            f"key={task.key!r} names {error}, the task's arguments are {', '.join(names) or 'none'}."
        ) from error


def _key_of(task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the key of a call, its template filled in. Raises: TypeError for arguments that the task does not take."""
    arguments = bound_arguments(task.func, task.takes_context, args, kwargs)
    return str(getattr(task, "key", "")).format(**arguments)
