"""A page of jobs or chains as every surface asks for it: the filter language's terms as optional parameters."""

from __future__ import annotations

import msgspec

from holdfast.storage.statement import Value


class JobQuery(msgspec.Struct, frozen=True):
    """Optional conditions, all of which must hold. `before` is the id where the previous page ended."""

    limit: int = 50
    before: str | None = None
    ids: tuple[str, ...] | None = None
    states: tuple[str, ...] | None = None
    types: tuple[str, ...] | None = None
    type_like: str | None = None
    chain: str | None = None
    key: str | None = None
    key_like: str | None = None
    error_like: str | None = None
    fingerprint: str | None = None
    worker: str | None = None
    attempt_min: int | None = None
    attempt_max: int | None = None
    age_min_ms: int | None = None
    age_max_ms: int | None = None

    def params(self) -> dict[str, Value]:
        """The statement's parameters; lists travel as JSON."""
        values: dict[str, Value] = {}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, tuple):
                value = msgspec.json.encode(value).decode()
            values[name] = value
        return values
