"""What the database says of itself, over named statements."""

from __future__ import annotations

from holdfast.storage.statement import Op, Statement


class Vitals:
    """See `storage.schedule_port.VitalsStore`."""

    def document(self) -> Op[str]:
        rows = yield Statement("vitals", {})
        text: str = rows[0][0]
        return text
