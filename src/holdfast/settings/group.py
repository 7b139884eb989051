"""Declares settings: a group is a frozen dataclass, each of its fields one variable with kind, default and text."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Protocol

from holdfast.settings.kinds import Kind, Value


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
