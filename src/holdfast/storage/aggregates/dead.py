"""Dead letters by their kind, over named statements."""

from __future__ import annotations

from holdfast.storage.records import DeadGroup
from holdfast.storage.statement import Op, Statement


class DeadLetters:
    """See `storage.port.DeadLetterStore`."""

    def groups(self, limit: int, look: int) -> Op[list[DeadGroup]]:
        rows = yield Statement("dead_groups", {"limit": limit, "look": look})
        return [DeadGroup(*row) for row in rows]
