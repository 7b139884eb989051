"""The arguments of a task by their names: what a template of a key and `by=` of a limit speak of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from inspect import signature
from typing import Any, cast

from holdfast.core.errors import InvalidOption
from holdfast.core.flow import By
from holdfast.core.registry import TYPE_OPTIONS, TypeOptions
from holdfast_django.tasks_api import AnyTask, normalize_json
from holdfast_values.tagged_values import tag_value, untag_value


def argument_names(task: AnyTask) -> list[str]:
    """Return the names of a task's arguments, without the context."""
    return list(signature(task.func).parameters)[int(task.takes_context) :]


def bound_arguments(
    function: Callable[..., Any],
    takes_context: bool,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a call's arguments by name, with defaults. Raises: TypeError for a call that cannot be."""
    context = (None,) if takes_context else ()
    bound = signature(function).bind(*context, *args, **kwargs)
    bound.apply_defaults()
    return dict(list(bound.arguments.items())[len(context) :])


def write_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a job's input that a call's arguments are. Raises: TypeError."""
    named = {name: write_value(each) for name, each in kwargs.items()}
    return {"args": [write_value(each) for each in args], "kwargs": named}


def write_value(value: Any) -> Any:
    """Return a value as JSON has it, tagged where that would make something else of it. Raises: TypeError."""
    return tag_value(value, normalize_json)


def read_arguments(payload: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a job's input as they were given. Raises: LookupError for an enum that is not there."""
    named = {name: untag_value(each) for name, each in payload["kwargs"].items()}
    return untag_value(payload["args"]), named


@dataclass(frozen=True, slots=True)
class ArgumentOf:
    """The key of a task's input: one of its arguments, or what a function makes of all, by name.

    Equal ones are the same key: limits of one type must agree on it.
    """

    function: Callable[..., Any]
    takes_context: bool
    by: By

    def __call__(self, payload: Mapping[str, Any]) -> object:
        """Return the key of a payload. Raises: TypeError for arguments that the task does not take."""
        found = bound_arguments(self.function, self.takes_context, *read_arguments(payload))
        if not isinstance(self.by, str):
            return self.by(found)
        value: Any = found
        for name in self.by.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value


def type_options(task: AnyTask) -> TypeOptions:
    """Return the options of a task's job types: what it has of those of a type, `by` its arguments.

    Raises: InvalidOption.
    """
    given = {name: getattr(task, name, None) for name in TYPE_OPTIONS if name != "atomic"}
    options = {
        name: [_by_argument(task, each) for each in value]
        if isinstance(value, list | tuple)
        else _by_argument(task, value)
        for name, value in given.items()
        if value is not None and value is not False and value != ()
    }
    return cast("TypeOptions", options)


def _by_argument(task: AnyTask, value: Any) -> Any:
    """Return an option whose `by`, if it has one, speaks of the task's arguments."""
    by = getattr(value, "by", None)
    if by is None:
        return value
    names = argument_names(task)
    if isinstance(by, str) and by.split(".")[0] not in names:
        raise InvalidOption(
            f"by={by!r} is not an argument of the task, which has {', '.join(names) or 'none'}"
        )
    value = copy(value)
    object.__setattr__(value, "by", ArgumentOf(task.func, task.takes_context, by))
    return value
