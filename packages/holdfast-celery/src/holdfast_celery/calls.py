"""What is stored of a task: its arguments, what follows it in a canvas, and the options it was started with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

import msgspec

from holdfast.client.start_options import Id, StartOptions, check_key
from holdfast.client.start_plan import Start
from holdfast.core.duration import MAX_DURATION_MS, milliseconds
from holdfast.core.errors import InvalidOption, PayloadNotEncodable
from holdfast.core.instants import Instant, to_datetime, to_instant
from holdfast.core.outcome import Continue
from holdfast.core.signatures import check_kind
from holdfast_celery.coverage import check_always_so, check_names
from holdfast_celery.queues import check_queue, type_name
from holdfast_values.tagged_values import tag_value, untag_value

COLLECT = "holdfast.celery.collect"
"""The task that ends a group whose results nothing else takes: it returns them as a list."""

MAP, STARMAP = "holdfast.celery.map", "holdfast.celery.starmap"
"""The tasks that call another one for each item of a list, one after another."""

GROUP = "holdfast.celery.group"
"""The type of the job that keeps which results a group has that was saved."""

LEAST_URGENT = 9


class CallOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """The options of one start, checked; times are the database's, delays are milliseconds."""

    after_ms: int | None = None
    at: Instant | None = None
    expires_ms: int | None = None
    expires_at: Instant | None = None
    priority: int | None = None
    task_id: str | None = None
    id: str | None = None
    """That of the job, where receivers of a signal were told of it before it was written."""
    queue: str | None = None
    """The name of a queue, "" for the default one."""
    headers: dict[str, Any] | None = None
    ignore_result: bool | None = None

    def merge(self, over: CallOptions) -> CallOptions:
        """Return these options, with those of another start in their place where it has some."""
        mine, others = msgspec.structs.asdict(self), msgspec.structs.asdict(over)
        for one, other in (("after_ms", "at"), ("expires_ms", "expires_at")):
            if others[one] is not None or others[other] is not None:
                mine[one] = mine[other] = None
        return CallOptions(**(mine | {k: v for k, v in others.items() if v is not None}))


NO_OPTIONS = CallOptions()


class TaskStep(msgspec.Struct, frozen=True, omit_defaults=True, tag="task"):
    """One task of a canvas, its arguments tagged, and the canvases to start once it has completed or failed."""

    task: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    immutable: bool = False
    options: CallOptions = NO_OPTIONS
    link: tuple[tuple[TaskStep | GroupStep, ...], ...] = ()
    link_error: tuple[tuple[TaskStep | GroupStep, ...], ...] = ()


class GroupStep(msgspec.Struct, frozen=True, tag="group"):
    """Several canvases that run at the same time; what follows waits for all of them."""

    members: tuple[tuple[TaskStep | GroupStep, ...], ...]


Step: TypeAlias = TaskStep | GroupStep
Steps: TypeAlias = tuple[Step, ...]
"""A canvas in the order in which it runs."""


class FailedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an error callback is given of the task that failed."""

    id: str
    task: str
    error: str
    root_id: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    retries: int = 0
    headers: dict[str, Any] | None = None


class TaskCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """The input of a task's job, its arguments tagged. With `collect`, the outputs of its blockers are the first.

    given: the result of the task before it, where its arguments do not say. failed: of an error callback, the task.
    """

    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    then: Steps = ()
    link: tuple[Steps, ...] = ()
    link_error: tuple[Steps, ...] = ()
    given: Any = None
    failed: FailedCall | None = None
    collect: bool = False
    expires_ms: int | None = None
    expires_at: Instant | None = None
    task_id: str | None = None
    headers: dict[str, Any] | None = None
    ignore_result: bool | None = None

    def expired_at(self, created_at: Instant) -> Instant | None:
        """Return when a job with this input expires."""
        if self.expires_ms is not None:
            return created_at + self.expires_ms * 1000
        return self.expires_at


def read_options(options: Mapping[str, Any], where: str) -> CallOptions:
    """Check the options of apply_async, a signature or a beat entry. Raises: CeleryUnsupported, InvalidOption."""
    check_names("call option", options, where)
    for name in ("args", "kwargs"):
        if name in options:
            raise InvalidOption(f"{name} is not an option of {where}", help="pass it beside them")
    given = {name: value for name, value in options.items() if value is not None}
    check_always_so("call option", given, where)
    check_kind("ignore_result", given.get("ignore_result", False), (bool,))
    if "countdown" in given and "eta" in given:
        raise InvalidOption("countdown and eta were both given", help="pass one of them")
    expires = given.get("expires")
    is_time = isinstance(expires, datetime)
    return CallOptions(
        after_ms=None if "countdown" not in given else _delay_ms(given["countdown"]),
        at=None if "eta" not in given else check_eta("eta", given["eta"]),
        expires_ms=None if expires is None or is_time else _delay_ms(expires),
        expires_at=check_eta("expires", expires) if is_time else None,
        priority=None if "priority" not in given else check_celery_priority(given["priority"]),
        task_id=None if "task_id" not in given else _check_task_id(given["task_id"]),
        queue=None if "queue" not in given else check_queue(given["queue"]),
        headers=None if "headers" not in given else check_headers(given["headers"]),
        ignore_result=given.get("ignore_result"),
    )


def check_eta(option: str, moment: object) -> Instant:
    """Return the instant of a datetime. Raises: InvalidOption for one without a time zone."""
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InvalidOption(
            f"{option}={repr(moment)[:60]} is not a time with a zone",
            help="use datetime.now(UTC) + …",
        )
    return to_instant(moment)


def check_celery_priority(priority: object) -> int:
    """Return a priority of Celery's. Raises: InvalidOption."""
    if type(priority) is not int or not 0 <= priority <= LEAST_URGENT:
        raise InvalidOption(
            f"priority={repr(priority)[:60]} is not a whole number from 0 to {LEAST_URGENT}"
        )
    return priority


def _delay_ms(seconds: object) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidOption(f"{repr(seconds)[:60]} is not a number of seconds")
    # A countdown of Celery's may lie in the past, which means now.
    return min(MAX_DURATION_MS, milliseconds(max(0.0, float(seconds))))


def check_headers(headers: object) -> dict[str, Any]:
    """Return headers, tagged. Raises: InvalidOption, PayloadNotEncodable."""
    if not isinstance(headers, Mapping):
        raise InvalidOption(f"headers={repr(headers)[:60]} is not a mapping")
    return {str(name): tag(each, "headers") for name, each in headers.items()}


def _check_task_id(task_id: object) -> str:
    checked = check_key(task_id)
    assert checked is not None
    if "*" in checked:
        raise InvalidOption(
            f"task_id={checked[:60]!r} contains *, by which it could not be looked up"
        )
    return checked


def tag_arguments(
    args: Sequence[Any], kwargs: Mapping[str, Any], task: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call as JSON has them. Raises: PayloadNotEncodable."""
    what = f"the arguments of {task}"
    named = {name: tag(each, what) for name, each in kwargs.items()}
    return tuple(tag(each, what) for each in args), named


def tag(value: Any, what: str) -> Any:
    """Return a value as JSON has it; `what` names it in messages. Raises: PayloadNotEncodable."""
    try:
        return tag_value(value, partial(_refuse_value, what=what))
    except RecursionError as error:
        raise PayloadNotEncodable(f"{what} is nested too deeply") from error


def _refuse_value(value: object, what: str) -> Any:
    """Refuse a value that a task would receive as something else. Raises: PayloadNotEncodable."""
    if type(value) is dict:
        value = next(key for key in value if type(key) is not str)
        what = f"a key of {what}"
    raise PayloadNotEncodable(
        f"{what} contains a {type(value).__name__}, which would arrive as something else",
        help="pass an id or a text, or write an @app.job whose input has that type",
    )


def untag_arguments(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments as they were given. Raises: LookupError for an enum that is not there."""
    return {name: untag_value(each) for name, each in kwargs.items()}


def untag_known(arguments: Any) -> Any:
    """Return arguments as they were given; as they are stored where this process does not know an enum."""
    try:
        return untag_value(arguments)
    except LookupError:
        return arguments


def input_of(step: TaskStep, given: Sequence[Any], then: Steps, collect: bool = False) -> TaskCall:
    """Return the input of a step's job: what it is given comes before its own arguments."""
    args = list(step.args) if step.immutable else [*given, *step.args]
    return TaskCall(
        args=args,
        kwargs=step.kwargs,
        then=then,
        link=step.link,
        link_error=step.link_error,
        given=given[0] if step.immutable and given else None,
        collect=collect and not step.immutable,
        expires_ms=step.options.expires_ms,
        expires_at=step.options.expires_at,
        task_id=step.options.task_id,
        headers=step.options.headers,
        ignore_result=step.options.ignore_result,
    )


def start_of(step: TaskStep, call: TaskCall, blockers: Sequence[Id] = ()) -> Start:
    """Return the start of a chain that begins with this step."""
    options: StartOptions = {}
    chosen = step.options
    if chosen.after_ms is not None:
        options["after"] = chosen.after_ms / 1000
    if chosen.at is not None:
        options["at"] = to_datetime(chosen.at)
    if chosen.priority is not None:
        options["priority"] = chosen.priority
    if chosen.task_id is not None:
        options["key"] = chosen.task_id
    if chosen.id is not None:
        options["id"] = chosen.id
    if blockers:
        options["blockers"] = blockers
    return Start(type_name(step.task, chosen.queue), call, **options)


def continue_with(
    step: TaskStep, call: TaskCall, spent_ms: int, blockers: Sequence[Id] = ()
) -> Continue:
    """Return how a chain goes on with this step; its delay counts from now, `spent_ms` after the claim."""
    chosen = step.options
    return Continue(
        type_name(step.task, chosen.queue),
        call,
        after=None if chosen.after_ms is None else (chosen.after_ms + spent_ms) / 1000,
        at=None if chosen.at is None else to_datetime(chosen.at),
        priority=chosen.priority,
        blockers=blockers,
        options={} if chosen.id is None else {"id": chosen.id},
    )
