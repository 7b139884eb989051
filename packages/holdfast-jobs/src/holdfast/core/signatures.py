"""What a decorator is given: the handler's input and output types by its annotations, and options of the right kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial, reduce
from inspect import Parameter
from operator import or_
from types import FunctionType, NoneType, UnionType
from typing import Any, Never, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from holdfast.core.errors import HandlerInvalid, InvalidOption

_LISTS = (list, Sequence)
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class HandlerSignature(msgspec.Struct, frozen=True):
    """The types a handler declares; Any where it declares nothing."""

    input: Any
    output: Any
    takes_batches: bool


def signature_of(
    function: Callable[..., Any], generic: type, outcomes: Sequence[type] = ()
) -> HandlerSignature:
    """Read a handler `(job: generic[Input]) -> Output | …`, where outcomes are no output.

    A batch handler takes `list[generic[Input]]` and may return a list with an output per job.
    """
    parameter = _job_parameter(function)
    _check_answers(function)
    hints = _hints_of(function)
    job, result = hints.get(parameter, Any), hints.get("return", Any)
    takes_batches = get_origin(job) in _LISTS
    if takes_batches:
        job, result = _member_of(job), _member_of(result)
    return HandlerSignature(
        _argument_of(job, generic), _without(result, tuple(outcomes)), takes_batches
    )


def is_async(function: Callable[..., Any]) -> bool:
    """Say whether calling it makes something to await."""
    called = called_function(function)
    # Most are; the rest of the question costs ten times as much, and steps ask it each time.
    if type(called) is FunctionType and called.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    return inspect.iscoroutinefunction(called)


def parameter_type(function: Callable[..., Any]) -> Any:
    """Return what its first parameter is annotated with, Any where it is not. Raises: HandlerInvalid."""
    return _hints_of(function).get(next(iter(inspect.signature(function).parameters)), Any)


def check_call(function: Callable[..., Any], *given: str) -> None:
    """Refuse what cannot be called with these, or would only yield. Raises: HandlerInvalid."""
    try:
        inspect.signature(function).bind(*given)
    except (TypeError, ValueError) as error:
        raise HandlerInvalid(
            f"{name_of(function)} cannot be called: {error}",
            help=f"write it as a function of ({', '.join(given)})",
        ) from error
    _check_answers(function)


def _check_answers(function: Callable[..., Any]) -> None:
    called = called_function(function)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise HandlerInvalid(
            f"{name_of(function)} is a generator, which handlers cannot be",
            help="return the result; report progress with job.progress()",
        )


def called_function(function: Callable[..., Any]) -> Any:
    """Return the function whose code runs when this is called."""
    if type(function) is FunctionType:
        return function
    bare: Any = function
    while isinstance(bare, partial):
        bare = bare.func
    return bare if inspect.isroutine(bare) else getattr(bare, "__call__", bare)  # noqa: B004


def _job_parameter(function: Callable[..., Any]) -> str:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise HandlerInvalid(f"{name_of(function)} has no readable signature") from error
    if not parameters or parameters[0].kind not in _POSITIONAL:
        raise HandlerInvalid(f"{name_of(function)} has no parameter for the job")
    for other in parameters[1:]:
        if other.default is Parameter.empty and other.kind not in _VARIADIC:
            raise HandlerInvalid(f"{name_of(function)} needs more than the job: {other.name}")
    return parameters[0].name


def _hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    bare: Any = inspect.unwrap(function)
    while isinstance(bare, partial):
        bare = inspect.unwrap(bare.func)
    if not inspect.isroutine(bare):
        bare = type(bare).__call__
    try:
        return get_type_hints(bare)
    except (NameError, AttributeError) as error:
        raise HandlerInvalid(
            f"the annotations of {name_of(function)} use an undefined name: {error}",
            help="define or import it at module level, and not only under TYPE_CHECKING",
        ) from error
    except (TypeError, SyntaxError):
        # Annotations need not be types; such a handler simply declares nothing.
        return {}


def _member_of(annotation: Any) -> Any:
    if _is_union(annotation):
        return reduce(or_, (_member_of(each) for each in get_args(annotation)))
    return get_args(annotation)[0] if get_origin(annotation) in _LISTS else annotation


def _argument_of(annotation: Any, generic: type) -> Any:
    argument = get_args(annotation)[0] if get_origin(annotation) is generic else Any
    return Any if isinstance(argument, TypeVar) else argument


def _without(annotation: Any, outcomes: tuple[type, ...]) -> Any:
    choices = get_args(annotation) if _is_union(annotation) else (annotation,)
    kept = [each for each in choices if not _is_one_of(each, (*outcomes, Never, NoReturn))]
    if not kept or any(isinstance(each, TypeVar) for each in kept):
        return Any
    return reduce(or_, kept)


def _is_one_of(annotation: Any, outcomes: tuple[Any, ...]) -> bool:
    return (get_origin(annotation) or annotation) in outcomes


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, UnionType)


def name_of(function: Callable[..., Any]) -> str:
    """Return what messages call a function."""
    return getattr(function, "__qualname__", None) or repr(function)[:60]


Kinds = tuple[type, ...]


def check_kind(option: str, value: object, kinds: Kinds) -> None:
    """Refuse a value of another kind; a boolean is no number. Raises: InvalidOption."""
    if isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)):
        return
    wanted = " or ".join(each.__name__ for each in kinds if each is not NoneType)
    raise InvalidOption(f"{option}={repr(value)[:60]} cannot be used", help=f"give it {wanted}")


def at_least_one(option: str, value: int | None) -> int | None:
    """Return a number from 1 on, or None. Raises: InvalidOption."""
    if value is not None and value < 1:
        raise InvalidOption(f"{option}={value} is too small, the minimum is 1")
    return value
