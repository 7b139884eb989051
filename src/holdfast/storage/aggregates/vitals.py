"""What the database says of itself, over named statements."""

from __future__ import annotations

from holdfast.storage.records import Swept
from holdfast.storage.statement import Op, Statement


class Vitals:
    """See `storage.schedule_port.VitalsStore`."""

    def document(self) -> Op[str]:
        rows = yield Statement("vitals", {})
        text: str = rows[0][0]
        return text

    def sweep(self, few: int) -> Op[Swept | None]:
        before, allowed = (yield Statement("dead_rows", {}))[0]
        if before <= few or not allowed:
            return None
        yield Statement("sweep", {})
        left, _ = (yield Statement("dead_rows", {}))[0]
        return Swept(before, left)
