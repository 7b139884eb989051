"""Who did what, over named statements."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.records import AuditRecord, Instant
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store.params import document, records_of


class AuditStore:
    """Who did what."""

    def append(self, records: Sequence[AuditRecord], now: Instant | None = None) -> Op[None]:
        """Write records in the transaction of the change. One statement."""
        yield Statement("audit_append", {"rows": document(records), "now": now})

    def page(
        self,
        limit: int,
        before: tuple[Instant, str] | None = None,
        *,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
    ) -> Op[list[AuditRecord]]:
        """Read records, newest first, from `before` on. One statement."""
        rows = yield Statement(
            "audit_list",
            {
                "limit": limit,
                "before_at": before[0] if before else None,
                "before_id": before[1] if before else None,
                "actor": actor,
                "action": action,
                "target": target,
            },
        )
        return records_of(AuditRecord, rows)
