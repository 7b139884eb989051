"""The audit log: who did what, newest first."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from holdfast.admin.authorize import Caller, Gateway
from holdfast.admin.serializers import rfc3339
from holdfast.core.codec import decode_any
from holdfast.core.errors import InvalidCursor, InvalidId, InvalidOption
from holdfast.core.ids import parse_id
from holdfast.core.records import AuditRecord, Instant
from holdfast.core.redaction import redact

LONGEST_PAGE = 1_000


class AuditPage(msgspec.Struct, frozen=True):
    """A part of the log; `next` is the cursor of the following part."""

    items: list[dict[str, Any]]
    next: str | None


class AuditLog:
    """What can be asked about deeds."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def page(
        self,
        caller: Caller,
        limit: int = 50,
        after: str | None = None,
        *,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
    ) -> AuditPage:
        """Read a page of deeds. Raises: InvalidCursor, InvalidOption."""
        if not 1 <= limit <= LONGEST_PAGE:
            raise InvalidOption(f"limit={limit} is not a whole number from 1 to {LONGEST_PAGE}")
        before = None if after is None else _read_cursor(after)
        found = await self._gateway.read(
            caller,
            "audit.list",
            lambda store: store.audit.page(
                limit + 1, before, actor=actor, action=action, target=target
            ),
        )
        more = len(found) > limit
        items = [_shown(each) for each in found[:limit]]
        return AuditPage(items, _cursor(found[limit - 1]) if more else None)


def _shown(record: AuditRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "at": rfc3339(record.at),
        "actor": record.actor,
        "role": record.role,
        "action": record.action,
        "target": record.target,
        "before": None if record.before is None else decode_any(record.before),
        "after": None if record.after is None else decode_any(record.after),
        "reason": None if record.reason is None else redact(record.reason),
        "request_id": record.request_id,
    }


def _cursor(record: AuditRecord) -> str:
    raw = msgspec.json.encode((record.at, record.id))
    return base64.urlsafe_b64encode(raw).decode()


def _read_cursor(text: str) -> tuple[Instant, str]:
    try:
        raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        at, id = msgspec.json.decode(raw, type=tuple[int, str])
        return at, str(parse_id(id))
    except (ValueError, binascii.Error, msgspec.MsgspecError, InvalidId):
        raise InvalidCursor("the cursor is not one of ours") from None
