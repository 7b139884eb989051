"""How settings are declared: a group is a frozen dataclass whose fields have a type, a default and a text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, fields
from functools import cache
from string import Formatter
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit

import msgspec

from holdfast.core.duration import MAX_DURATION_MS, milliseconds
from holdfast.core.errors import ConfigError, InvalidDuration, InvalidSchedule
from holdfast.core.schedule import Cron
from holdfast.core.schemes import BROKER_EXTRAS, FILE_SCHEMES, POSTGRES_SCHEMES
from holdfast.extensions import merge

Value = str | int | bool | tuple[str, ...] | None

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


class ValueType(Protocol):
    """The type of a value: how it is parsed, and what is expected."""

    @property
    def expected(self) -> str:
        """What is expected, as the end of the sentence "set X to …"."""

    def parse(self, raw: object) -> Value:
        """Return the value. Raises: ValueError, whose text, if any, is better advice than `expected`."""


class Integer(msgspec.Struct, frozen=True):
    """An integer within bounds, as digits or as a number."""

    low: int = 0
    high: int = MAX_DURATION_MS
    in_ms: bool = False

    @property
    def expected(self) -> str:
        unit = " of milliseconds" if self.in_ms else ""
        if self.high == MAX_DURATION_MS:
            return f"a whole number{unit}, at least {self.low}"
        return f"a whole number{unit} from {self.low} to {self.high}"

    def parse(self, raw: object) -> int:
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
            raise ValueError(_milliseconds_advice(text))
        raise ValueError


def _milliseconds_advice(text: str) -> str:
    try:
        return f"write it in milliseconds: {milliseconds(text)}"
    except InvalidDuration:
        return ""


class Boolean(msgspec.Struct, frozen=True):
    """A boolean."""

    expected: str = "true or false"

    def parse(self, raw: object) -> bool:
        if isinstance(raw, bool):
            return raw
        word = raw.strip().lower() if isinstance(raw, str) else None
        if word in _TRUE:
            return True
        if word in _FALSE:
            return False
        raise ValueError


class Text(msgspec.Struct, frozen=True):
    """Any text on one line."""

    expected: str = "a single line of text"

    def parse(self, raw: object) -> str:
        if not isinstance(raw, str) or not raw.strip().isprintable():
            raise ValueError
        return raw.strip()


class OneOf(msgspec.Struct, frozen=True):
    """One of a few options, in any case."""

    options: tuple[str, ...]

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.options)}"

    def parse(self, raw: object) -> str:
        word = raw.strip().lower() if isinstance(raw, str) else None
        for option in self.options:
            if word == option.lower():
                return option
        raise ValueError


class Names(msgspec.Struct, frozen=True):
    """Names separated by commas, or a list of them."""

    expected: str = "names separated by commas"

    def parse(self, raw: object) -> tuple[str, ...]:
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
            raise ValueError("list each one only once")
        return tuple(found)


class HttpUrl(msgspec.Struct, frozen=True):
    """A URL with a host."""

    expected: str = "a URL that starts with http:// or https://"

    def parse(self, raw: object) -> str:
        url = Text().parse(raw)
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError
        return url


class Url(msgspec.Struct, frozen=True):
    """A URL of one of these schemes, with or without the driver that SQLAlchemy names."""

    schemes: tuple[str, ...]
    expected: str

    def parse(self, raw: object) -> str:
        url = Text().parse(raw)
        scheme, _, rest = url.partition("://")
        if not (rest and scheme.partition("+")[0] in self.schemes):
            raise ValueError
        return url


class NotifierUrl(msgspec.Struct, frozen=True):
    """What carries hints; extensions add schemes."""

    expected: str = "local, none, or a postgresql://, redis:// or nats:// URL"

    def parse(self, raw: object) -> str:
        url = Text().parse(raw)
        if url in ("local", "none"):
            return url
        schemes = (*POSTGRES_SCHEMES, *BROKER_EXTRAS, *merge("notifiers"))
        return Url(schemes, self.expected).parse(url)


class FilesUrl(msgspec.Struct, frozen=True):
    """A directory or a bucket."""

    expected: str = "a path, file:///path or s3://bucket/prefix"

    def parse(self, raw: object) -> str:
        url = Text().parse(raw)
        if urlsplit(url).scheme:
            Url(FILE_SCHEMES, self.expected).parse(url)
        return url


class Secret(msgspec.Struct, frozen=True):
    """A text that cannot be guessed."""

    least: int = 16

    @property
    def expected(self) -> str:
        return f"a random text of at least {self.least} characters"

    def parse(self, raw: object) -> str:
        text = Text().parse(raw)
        if len(text) < self.least:
            raise ValueError
        return text


def parse_variable(name: str, kind: ValueType, text: str) -> str:
    """Return an application's own variable as its type reads it. Raises: ConfigError, which does not repeat it."""
    try:
        return str(kind.parse(text))
    except ValueError:
        raise ConfigError(f"{name} is invalid", help=f"set {name} to {kind.expected}") from None


class UrlTemplate(msgspec.Struct, frozen=True):
    """A URL with places for names, of which the first must be there."""

    names: tuple[str, ...]

    @property
    def expected(self) -> str:
        return f"a URL like https://traces.example/{{{self.names[0]}}}"

    def parse(self, raw: object) -> str:
        url = HttpUrl().parse(raw)
        found = {name for _, name, _, _ in Formatter().parse(url) if name is not None}
        if self.names[0] not in found:
            raise ValueError
        if unknown := sorted(found - set(self.names)):
            raise ValueError(f"{{{unknown[0]}}} is not one of {', '.join(self.names)}")
        return url


class ZoneName(msgspec.Struct, frozen=True):
    """The IANA name of a time zone."""

    expected: str = "the IANA name of a time zone like America/Santiago"

    def parse(self, raw: object) -> str:
        try:
            return Cron("0 0 * * *", Text().parse(raw)).zone.key
        except InvalidSchedule as error:
            raise ValueError from error


class SettingsGroup(Protocol):
    """A frozen dataclass whose fields were made by `setting`; PREFIX + FIELD is the variable's name."""

    PREFIX: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


class Variable(msgspec.Struct, frozen=True):
    """One setting; documentation and validation are made from it."""

    name: str
    field: str
    kind: ValueType
    default: Value
    text: str
    secret: bool
    fallback: str | None


def setting(
    kind: ValueType, default: Value, text: str, *, secret: bool = False, fallback: str | None = None
) -> Any:
    """Declare one field of a group; an unset one takes the value of its `fallback` variable, if it has one."""
    return field(
        default=default,
        metadata={"setting": Variable("", "", kind, default, text, secret, fallback)},
        kw_only=True,
    )


@cache
def variables_of(group: type[SettingsGroup]) -> tuple[Variable, ...]:
    """Return the variables of a group in the order of their declaration."""
    return tuple(
        msgspec.structs.replace(
            each.metadata["setting"], name=f"{group.PREFIX}{each.name}".upper(), field=each.name
        )
        for each in fields(group)
    )
