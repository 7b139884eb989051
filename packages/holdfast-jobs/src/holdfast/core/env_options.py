"""Options of a decorator that come from the environment: a number, a duration or a text.

`FromEnv` carries the variable, so that every message and every listing can name it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from holdfast.core.duration import milliseconds
from holdfast.core.errors import ConfigError, HoldfastError, InvalidOption

T_co = TypeVar("T_co", covariant=True)

LARGEST_NUMBER = 1_000_000


class FromEnv(msgspec.Struct, Generic[T_co], frozen=True):
    """An option's value from an environment variable; without a text there, the default counts."""

    variable: str
    default: T_co
    text: str | None = None

    @property
    def origin(self) -> str:
        """Where the value comes from, in the words of `holdfast config show --origin`."""
        return "default" if self.text is None else "env"


class OptionReader(NamedTuple):
    """How a variable's text becomes an option: what is expected, and a function that raises for anything else."""

    expected: str
    read: Callable[[FromEnv[Any], str], Any]


def resolve_options(
    owner: str, options: Mapping[str, Any], readers: Mapping[str, OptionReader]
) -> tuple[dict[str, Any], dict[str, FromEnv[Any]]]:
    """Replace what comes from the environment by its value; return the options, and which came from where.

    Raises: ConfigError with the variable's name, InvalidOption for an option that takes no variable.
    """
    values: dict[str, Any] = {}
    variables: dict[str, FromEnv[Any]] = {}
    for option, value in options.items():
        if not isinstance(value, FromEnv):
            values[option] = value
            continue
        if option not in readers:
            raise InvalidOption(
                f"{option} cannot come from the environment",
                help=f"from_env works for {', '.join(readers)}",
            )
        variables[option] = value
        values[option] = _value(owner, option, value, readers[option])
    return values, variables


def _value(owner: str, option: str, given: FromEnv[Any], reader: OptionReader) -> Any:
    if given.text is None:
        return given.default
    try:
        return reader.read(given, given.text)
    except (ValueError, HoldfastError) as error:
        reason = [error.message] if isinstance(error, HoldfastError) else []
        otherwise = "" if given.default is None else f" for {given.default!r}"
        raise ConfigError(
            f"{given.variable} cannot be used as {option} of {owner}",
            details=[f"{given.variable}={given.text[:60]!r} (env)", *reason],
            help=f"set {given.variable} to {reader.expected}, or unset it{otherwise}",
        ) from error


def _number(_: FromEnv[Any], text: str) -> int:
    digits = text.replace("_", "")
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 20
    if not is_number or not 1 <= int(digits) <= LARGEST_NUMBER:
        raise ValueError
    return int(digits)


_UNITS = {"MS": "ms", "SECONDS": "s", "MINUTES": "m", "HOURS": "h", "DAYS": "d"}


def duration_text(given: FromEnv[Any], text: str) -> str:
    """Return the text of a duration above zero; plain digits have the unit that the variable's name ends in."""
    unit = _UNITS.get(given.variable.rpartition("_")[2])
    if unit and text.isascii() and text.isdigit():
        text += unit
    if milliseconds(text) < 1:
        raise ValueError
    return text


NUMBER = OptionReader(f"a whole number from 1 to {LARGEST_NUMBER}", _number)
DURATION = OptionReader("a duration with a unit, such as 30s or 5m", duration_text)
