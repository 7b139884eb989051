"""Values that JSON does not have, as JSON: `{"__date__": "2026-11-18"}`, and read again as what they were."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

_PLAIN = (type(None), bool, int, float, str)
_TEXTS = {
    each: f"__{each.__name__.lower()}__"
    for each in (datetime, date, time, timedelta, UUID, Decimal)
}
_KINDS = {tag: kind for kind, tag in _TEXTS.items()}
_TUPLE, _ENUM, _DICT = "__tuple__", "__enum__", "__dict__"
_TAGS = frozenset({*_KINDS, _TUPLE, _ENUM, _DICT})


def tag_value(value: Any, otherwise: Callable[[Any], Any]) -> Any:
    """Return a value as JSON has it, with a tag around each part that JSON lacks.

    A dict that looks like a tag gets one itself, so that it is read again as the dict. What has no tag either becomes
    what `otherwise` makes of it.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list:
        return [tag_value(each, otherwise) for each in value]
    if kind is tuple:
        return {_TUPLE: [tag_value(each, otherwise) for each in value]}
    if kind in _TEXTS:
        return {_TEXTS[kind]: msgspec.to_builtins(value)}
    if kind is dict and all(type(key) is str for key in value):
        found = {key: tag_value(each, otherwise) for key, each in value.items()}
        return {_DICT: found} if _is_tag(found) else found
    if isinstance(value, Enum):
        path = f"{kind.__module__}:{kind.__qualname__}.{value.name}"
        if _find_member(path) is value:
            return {_ENUM: path}
    return otherwise(value)


def untag_value(value: Any) -> Any:
    """Return what a value was before it was tagged. Raises: LookupError for an enum that is not there."""
    if type(value) is list:
        return [untag_value(each) for each in value]
    if type(value) is not dict:
        return value
    if not _is_tag(value):
        return {key: untag_value(each) for key, each in value.items()}
    ((tag, inner),) = value.items()
    if tag == _DICT and type(inner) is dict:
        return {key: untag_value(each) for key, each in inner.items()}
    if tag == _TUPLE and type(inner) is list:
        return tuple(untag_value(each) for each in inner)
    if tag == _ENUM and type(inner) is str:
        return _read_member(inner)
    try:
        return msgspec.convert(inner, _KINDS[tag])
    except (KeyError, msgspec.ValidationError):
        # Not of our making: a dict from before there were tags.
        return {tag: untag_value(inner)}


def _is_tag(value: dict[str, Any]) -> bool:
    return len(value) == 1 and not _TAGS.isdisjoint(value)


def _read_member(path: str) -> Enum:
    found = _find_member(path)
    if found is None:
        raise LookupError(
            f"there is no enum member {path[:200]} in this process: import its module, "
            "and if the class has moved, leave its old name where it was"
        )
    return found


def _find_member(path: str) -> Enum | None:
    """Return a member by its path, if its module is imported: a text in a database must not import one."""
    module, _, rest = path.partition(":")
    *names, member = rest.split(".")
    found: Any = sys.modules.get(module)
    for name in names:
        found = vars(found).get(name) if hasattr(found, "__dict__") else None
    is_enum = isinstance(found, type) and issubclass(found, Enum)
    return found.__members__.get(member) if is_enum else None
