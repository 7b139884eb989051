"""Who may come in, and who did what: tokens of the API and the audit log, over named statements."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.instants import Instant
from holdfast.core.records import AuditRecord, NewToken, TokenRecord
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store.params import document, fetch, fetch_one, record_of


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
        """Read records, newest first, from `before` on; those of many by each of their targets. One statement."""
        return fetch(
            AuditRecord,
            "audit_list",
            limit=limit,
            before_at=before[0] if before else None,
            before_id=before[1] if before else None,
            actor=actor,
            action=action,
            target=target,
            within=_within(target),
        )


def _within(target: str | None) -> str | None:
    """Return how the id of a target is written among those of a change of many."""
    id = (target or "").partition(" ")[2]
    return f'"{id}"' if len(id) == 36 else None


class TokenStore:
    """Tokens of the API. Only hashes are stored, and every question about them is by hash or id."""

    def create(self, token: NewToken, now: Instant | None = None) -> Op[TokenRecord]:
        """Write a token and return it. One statement."""
        rows = yield Statement("token_create", {**msgspec.structs.asdict(token), "now": now})
        return record_of(TokenRecord, rows[0])

    def find(self, hash: str, now: Instant | None = None) -> Op[TokenRecord | None]:
        """Read the token of a hash; None unless it is valid now. One statement."""
        return fetch_one(TokenRecord, "token_find", hash=hash, now=now)

    def touch(self, id: str, now: Instant | None = None) -> Op[None]:
        """Note that a token was used, to the minute. One statement."""
        yield Statement("token_touch", {"id": id, "now": now})

    def revoke(self, id: str, now: Instant | None = None) -> Op[TokenRecord | None]:
        """Make a token invalid from now on; None when there is none that is not revoked. One statement."""
        return fetch_one(TokenRecord, "token_revoke", id=id, now=now)

    def page(self, limit: int) -> Op[list[TokenRecord]]:
        """Read tokens, newest first. One statement."""
        return fetch(TokenRecord, "token_list", limit=limit)

    def exist(self) -> Op[bool]:
        """Say whether any token was ever made. One statement."""
        rows = yield Statement("token_exist", {})
        return bool(rows[0][0])
