"""Kinds of values: how each is read from a text, a file or an argument, and the words for what it should be.

Declares settings: a group is a frozen dataclass, each of its fields one variable with kind, default and text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit

from holdfast.core.duration import LONGEST_MS, milliseconds
from holdfast.core.errors import InvalidDuration, InvalidSchedule
from holdfast.core.schedule import Cron

Value = str | int | bool | tuple[str, ...] | None

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


class Kind(Protocol):
    """One kind of value."""

    @property
    def words(self) -> str:
        """What a value should be, as the end of the sentence "it should be …"."""

    def read(self, raw: object) -> Value:
        """Return the value. Raises: ValueError, with an advice as its text where there is a better one than `words`."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number within bounds, as digits or as a number."""

    low: int = 0
    high: int = LONGEST_MS
    in_ms: bool = False

    @property
    def words(self) -> str:
        unit = " of milliseconds" if self.in_ms else ""
        if self.high == LONGEST_MS:
            return f"a whole number{unit} from {self.low}"
        return f"a whole number{unit} from {self.low} to {self.high}"

    def read(self, raw: object) -> int:
        if isinstance(raw, str):
            raw = self._number(raw)
        if not isinstance(raw, int) or isinstance(raw, bool):
            raise ValueError
        if not self.low <= raw <= self.high:
            raise ValueError
        return raw

    def _number(self, text: str) -> int:
        digits = text.strip().replace("_", "")
        if digits.isascii() and digits.removeprefix("-").isdigit() and len(digits) < 20:
            return int(digits)
        if self.in_ms:
            raise ValueError(_advice_for_duration(text))
        raise ValueError


def _advice_for_duration(text: str) -> str:
    try:
        return f"write it in milliseconds: {milliseconds(text)}"
    except InvalidDuration:
        return ""


@dataclass(frozen=True, slots=True)
class Flag:
    """Yes or no."""

    words: str = "true or false"

    def read(self, raw: object) -> bool:
        if isinstance(raw, bool):
            return raw
        word = raw.strip().lower() if isinstance(raw, str) else None
        if word in _TRUE:
            return True
        if word in _FALSE:
            return False
        raise ValueError


@dataclass(frozen=True, slots=True)
class Text:
    """Any text on one line."""

    words: str = "a text on one line"

    def read(self, raw: object) -> str:
        if not isinstance(raw, str) or not raw.strip().isprintable():
            raise ValueError
        return raw.strip()


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    options: tuple[str, ...]

    @property
    def words(self) -> str:
        return f"one of {', '.join(self.options)}"

    def read(self, raw: object) -> str:
        word = raw.strip().lower() if isinstance(raw, str) else None
        for option in self.options:
            if word == option.lower():
                return option
        raise ValueError


@dataclass(frozen=True, slots=True)
class Names:
    """Names separated by commas, or a list of them."""

    words: str = "names separated by commas"

    def read(self, raw: object) -> tuple[str, ...]:
        names = raw.split(",") if isinstance(raw, str) else raw
        if not isinstance(names, Iterable):
            raise ValueError
        found = []
        for name in names:
            if not isinstance(name, str) or not name.strip().isprintable():
                raise ValueError
            if name.strip():
                found.append(name.strip())
        if len(set(found)) < len(found):
            raise ValueError("name each of them once")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Address:
    """A URL with a host, of one of the schemes."""

    schemes: tuple[str, ...]

    @property
    def words(self) -> str:
        return f"a URL that begins with {' or '.join(f'{each}://' for each in self.schemes)}"

    def read(self, raw: object) -> str:
        if not isinstance(raw, str) or not raw.strip().isprintable():
            raise ValueError
        parts = urlsplit(raw.strip())
        if parts.scheme not in self.schemes or not parts.hostname:
            raise ValueError
        return raw.strip()


@dataclass(frozen=True, slots=True)
class CronText:
    """A cron expression of five fields."""

    words: str = 'a cron expression of five fields like "17 3 * * *"'

    def read(self, raw: object) -> str:
        if not isinstance(raw, str):
            raise ValueError
        try:
            return Cron(raw).expression
        except InvalidSchedule as error:
            raise ValueError(error.message) from error


@dataclass(frozen=True, slots=True)
class ZoneName:
    """The IANA name of a time zone."""

    words: str = "the IANA name of a time zone like America/Santiago"

    def read(self, raw: object) -> str:
        if not isinstance(raw, str):
            raise ValueError
        try:
            return Cron("0 0 * * *", raw.strip()).zone.key
        except InvalidSchedule as error:
            raise ValueError from error


class Group(Protocol):
    """A frozen dataclass whose fields were made by `setting`; PREFIX + FIELD is the variable's name."""

    PREFIX: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Variable:
    """One setting as people know it. Documentation and checks are made from this."""

    name: str
    field: str
    kind: Kind
    default: Value
    text: str
    secret: bool
    fallback: str | None

    @property
    def unit(self) -> str:
        """The unit that the name ends with, if it has one."""
        last = self.name.rpartition("_")[2]
        return {"MS": "ms", "MINUTES": "min", "DAYS": "days"}.get(last, "")


@dataclass(frozen=True, slots=True)
class _Declared:
    kind: Kind
    default: Value
    text: str
    secret: bool
    fallback: str | None


def setting(
    kind: Kind, default: Value, text: str, *, secret: bool = False, fallback: str | None = None
) -> Any:
    """Declare one field of a group; with a fallback, another variable's value stands in for an unset one."""
    return field(
        default=default,
        metadata={"setting": _Declared(kind, default, text, secret, fallback)},
        kw_only=True,
    )


@cache
def variables_of(group: type[Group]) -> tuple[Variable, ...]:
    """Return the variables of a group in the order of their declaration."""
    found = []
    for each in fields(group):
        declared: _Declared = each.metadata["setting"]
        found.append(
            Variable(
                name=f"{group.PREFIX}{each.name}".upper(),
                field=each.name,
                kind=declared.kind,
                default=declared.default,
                text=declared.text,
                secret=declared.secret,
                fallback=declared.fallback,
            )
        )
    return tuple(found)
