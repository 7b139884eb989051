"""Parameters as every PostgreSQL driver gets them: as text, cast by the statement itself."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.storage.operation import Value


def as_text(params: Mapping[str, Value]) -> dict[str, str | None]:
    """Give every parameter as text; the statement casts it."""
    return {
        name: value if value is None or type(value) is str else _text(value)
        for name, value in params.items()
    }


def _text(value: Value) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
