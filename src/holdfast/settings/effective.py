"""The effective settings and where each comes from, without secrets."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.redaction import MASK, redact
from holdfast.settings.definitions import GROUPS, Settings
from holdfast.settings.fields import Variable, variables_of

_LONGEST_SHOWN = 200


class Effective(msgspec.Struct, frozen=True):
    """One line of `holdfast config show --origin`."""

    name: str
    value: str
    origin: str


def effective(settings: Settings) -> list[Effective]:
    """Return every setting with its value and origin."""
    rows = []
    for key, group in GROUPS.items():
        held: Any = getattr(settings, key)
        for each in variables_of(group):
            value = display_value(each, getattr(held, each.field))
            rows.append(Effective(each.name, value, settings.origin(each.name)))
    return rows


def display_value(variable: Variable, value: object) -> str:
    """Return a value for display: on one line, of bounded length, without secrets."""
    return MASK if variable.secret and value is not None else display_text(value)


def display_text(value: object) -> str:
    """Return any value on one line, of bounded length, without what looks like a secret."""
    if value is None:
        return "(unset)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    text = redact(str(value))
    if not text.isprintable():
        text = repr(text)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
