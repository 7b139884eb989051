"""The results of steps as text: checked by what the function declares to return, read again as the same type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

from holdfast.core.codec import TypeCodec
from holdfast.core.errors import HandlerInvalid
from holdfast.core.signatures import called_function, name_of

ANYTHING = TypeCodec(Any, "output")

_codecs: dict[tuple[Any, Any, Any], TypeCodec] = {}


def result_codec(function: Callable[..., Any]) -> TypeCodec:
    """Return the codec of what a function declares to return, made once for its code."""
    called = called_function(function)
    code = getattr(called, "__code__", None)
    declared = getattr(called, "__annotations__", {}).get("return", Any)
    if code is None or declared is Any:
        return ANYTHING
    # Equal code of another module may mean another type by the same name.
    key = called.__module__, code, declared
    try:
        known = _codecs.get(key)
    except TypeError:
        return _make_codec(called)
    if known is None:
        known = _codecs[key] = _make_codec(called)
    return known


def codec_of(type_: Any) -> TypeCodec:
    """Return the codec of what a signal is to bring. Raises: HandlerInvalid."""
    return ANYTHING if type_ is Any or type_ is None else TypeCodec(type_, "data")


def _make_codec(function: Any) -> TypeCodec:
    try:
        return TypeCodec(get_type_hints(function).get("return", Any), "output")
    except (NameError, AttributeError) as error:
        raise HandlerInvalid(
            f"the annotations of {name_of(function)} use an undefined name: {error}",
            help="define or import it at module level, and not only under TYPE_CHECKING",
        ) from error
    except TypeError:
        return ANYTHING
