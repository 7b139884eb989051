"""A job's context: what it was started in, such as its tenant, user and locale, as a flat object of short strings."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from holdfast.core.errors import ContextInvalid, nearest
from holdfast.core.filters import is_context_name


def encode_context(context: object, declared: Collection[str] | None = None) -> str:
    """Return a context as it is stored, equal ones as equal texts. Raises: ContextInvalid, for undeclared names too."""
    if not isinstance(context, Mapping) or len(context) > 16:
        raise ContextInvalid(f"{repr(context)[:60]} is no mapping of up to 16 names")
    for name, value in context.items():
        if not isinstance(name, str) or not is_context_name(name):
            raise ContextInvalid(f"{repr(name)[:60]} is not a name of letters, digits, _ and -")
        if declared is not None and name not in declared:
            near = nearest(name, declared) or f"use one of {', '.join(declared)}"
            raise ContextInvalid(f"the application's context has no {name}", help=near)
        if not isinstance(value, str):
            raise ContextInvalid(f"{name} is {repr(value)[:60]}, which is not a text")
        if not 1 <= len(value) <= 200 or not value.isprintable():
            raise ContextInvalid(f"{name} has not 1 to 200 printable characters")
    return msgspec.json.encode(dict(sorted(context.items()))).decode()


def decode_context(text: str | None) -> dict[str, str]:
    """Return a stored context; empty for a job without one."""
    return {} if text is None else msgspec.json.decode(text, type=dict[str, str])
