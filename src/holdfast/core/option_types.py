"""What an option of a decorator may be: values of another kind are refused instead of being read as something."""

from __future__ import annotations

from types import NoneType

from holdfast.core.errors import InvalidOption

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
