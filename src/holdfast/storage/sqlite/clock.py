"""The instant of an operation that takes several statements: read once, so that all of them agree."""

from __future__ import annotations

from holdfast.core.model import Instant
from holdfast.storage.statement import Op, Statement


def moment(now: Instant | None) -> Op[Instant]:
    """Return the instant that was given, or the database's clock."""
    if now is not None:
        return now
    rows = yield Statement("clock", {})
    instant: Instant = rows[0][0]
    return instant
