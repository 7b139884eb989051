"""Tokens of the API, over named statements."""

from __future__ import annotations

import msgspec

from holdfast.core.records import Instant, NewToken, TokenRecord
from holdfast.storage.operation import Op, Statement


class Tokens:
    """See `storage.token_port.TokenStore`."""

    def create(self, token: NewToken, now: Instant | None = None) -> Op[TokenRecord]:
        rows = yield Statement("token_create", {**msgspec.structs.asdict(token), "now": now})
        return TokenRecord(*rows[0])

    def find(self, hash: str, now: Instant | None = None) -> Op[TokenRecord | None]:
        rows = yield Statement("token_find", {"hash": hash, "now": now})
        return TokenRecord(*rows[0]) if rows else None

    def touch(self, id: str, now: Instant | None = None) -> Op[None]:
        yield Statement("token_touch", {"id": id, "now": now})

    def revoke(self, id: str, now: Instant | None = None) -> Op[TokenRecord | None]:
        rows = yield Statement("token_revoke", {"id": id, "now": now})
        return TokenRecord(*rows[0]) if rows else None

    def page(self, limit: int) -> Op[list[TokenRecord]]:
        rows = yield Statement("token_list", {"limit": limit})
        return [TokenRecord(*row) for row in rows]

    def exist(self) -> Op[bool]:
        rows = yield Statement("token_exist", {})
        return bool(rows[0][0])
