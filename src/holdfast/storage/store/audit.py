"""Who did what, over named statements."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.records import AuditRecord, Deed, Instant
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store.params import document


class Audit:
    """See `storage.port.AuditStore`."""

    def append(self, deeds: Sequence[Deed], now: Instant | None = None) -> Op[None]:
        yield Statement("audit_append", {"rows": document(deeds), "now": now})

    def page(
        self,
        limit: int,
        before: tuple[Instant, str] | None = None,
        *,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
    ) -> Op[list[AuditRecord]]:
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
        return [AuditRecord(*row) for row in rows]
