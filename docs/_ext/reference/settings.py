"""The reference of settings, from the groups that declare them."""

from __future__ import annotations

from collections.abc import Iterable

from docs._ext.reference.markdown import code, table
from docs._ext.reference.undocumented import require

from holdfast.settings import GROUPS, Variable, variables_of
from holdfast.settings.load import display_value


def page() -> str:
    """Return every setting by group. Raises: Undocumented."""
    parts = []
    for key, group in GROUPS.items():
        title = (group.__doc__ or "").strip()
        require("a group of settings without text", [key] if not title else [])
        parts.append(
            f"## {group.PREFIX or key.capitalize()}\n\n{title}\n\n{_table(variables_of(group))}"
        )
    return "\n".join(parts)


def _table(variables: Iterable[Variable]) -> str:
    rows = list(variables)
    require("settings without text", (each.name for each in rows if not each.text.strip()))
    return table(
        ("name", "default", "valid values", "meaning"),
        ((code(each.name), _default(each), each.kind.expected, _meaning(each)) for each in rows),
    )


def _default(variable: Variable) -> str:
    if variable.fallback is not None:
        return f"{code(variable.fallback)}, else {code(display_value(variable, variable.default))}"
    return "unset" if variable.default is None else code(display_value(variable, variable.default))


def _meaning(variable: Variable) -> str:
    return f"{variable.text} Never shown." if variable.secret else variable.text
