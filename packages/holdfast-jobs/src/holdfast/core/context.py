"""A job's context: what it was started in, such as its tenant, user and locale, as a flat object of short strings."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from holdfast.core.errors import ContextInvalid

MAX_NAMES = 16
MAX_VALUE_LENGTH = 200

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}", re.ASCII)


def is_context_name(name: object) -> bool:
    """Whether a context can have a value of this name."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def encode_context(context: object) -> str:
    """Return a context as it is stored. Raises: ContextInvalid."""
    if not isinstance(context, Mapping):
        raise ContextInvalid(f"{repr(context)[:60]} is not a mapping of names to texts")
    if len(context) > MAX_NAMES:
        raise ContextInvalid(f"the context has {len(context)} values, the limit is {MAX_NAMES}")
    for name, value in context.items():
        if not is_context_name(name):
            raise ContextInvalid(
                f"{repr(name)[:60]} is not a name in a context",
                help="use up to 40 letters, digits, _ and -, beginning with a letter",
            )
        if not isinstance(value, str):
            raise ContextInvalid(
                f"{name} is {repr(value)[:60]} and not a text",
                help=f"leave {name} out if there is none, else give its text, as in str(user.id)",
            )
        if not 1 <= len(value) <= MAX_VALUE_LENGTH or not value.isprintable():
            raise ContextInvalid(
                f"{name} has {len(value)} characters, or some that cannot be printed",
                help=f"give 1 to {MAX_VALUE_LENGTH} characters: an id, not what it refers to",
            )
    # Sorted, so that equal contexts are equal texts.
    return msgspec.json.encode(dict(sorted(context.items()))).decode()


def decode_context(text: str | None) -> dict[str, str]:
    """Return a stored context; empty for a job without one."""
    return {} if text is None else msgspec.json.decode(text, type=dict[str, str])
