"""The arguments of a task by their names: what a template of a key and `by=` of a limit speak of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from inspect import signature
from typing import Any, TypeVar

from holdfast.core.errors import InvalidOption
from holdfast.core.flow import By, Fair, Limit, Ordered, Rate
from holdfast.core.registry import TypeOptions
from holdfast_django.tasks_api import AnyTask

Rule = TypeVar("Rule", Limit, Rate, Fair, Ordered)


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
        found = bound_arguments(
            self.function, self.takes_context, payload["args"], payload["kwargs"]
        )
        if not isinstance(self.by, str):
            return self.by(found)
        value: Any = found
        for name in self.by.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value


def flow_options(task: AnyTask) -> TypeOptions:
    """Return the limits, rates, fairness and order of a task, by its arguments. Raises: InvalidOption."""
    options: TypeOptions = {}
    if limits := getattr(task, "limits", ()):
        options["limits"] = list(_by_arguments(task, limits))
    if rates := getattr(task, "rates", ()):
        options["rates"] = list(_by_arguments(task, rates))
    if (fair := getattr(task, "fair", None)) is not None:
        (options["fair"],) = _by_arguments(task, [fair])
    if (ordered := getattr(task, "ordered", None)) is not None:
        (options["ordered"],) = _by_arguments(task, [ordered])
    return options


def _by_arguments(task: AnyTask, rules: Sequence[Rule]) -> Iterator[Rule]:
    names = argument_names(task)
    for each in rules:
        by = getattr(each, "by", None)
        if isinstance(by, str) and by.split(".")[0] not in names:
            raise InvalidOption(
                f"by={by!r} is not an argument of the task, which has {', '.join(names) or 'none'}"
            )
        if by is not None:
            each = copy(each)
            object.__setattr__(each, "by", ArgumentOf(task.func, task.takes_context, by))
        yield each
