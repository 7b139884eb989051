"""What a store must offer to keep tokens; the same rules as in `storage.port`."""

from __future__ import annotations

from typing import Protocol

from holdfast.core.model import Instant
from holdfast.storage.records import NewToken, TokenRecord
from holdfast.storage.statement import Op


class TokenStore(Protocol):
    """Tokens of the API. Only hashes are stored, and every question about them is by hash or id."""

    def create(self, token: NewToken, now: Instant | None = None) -> Op[TokenRecord]:
        """Write a token and return it. One statement."""

    def find(self, hash: str, now: Instant | None = None) -> Op[TokenRecord | None]:
        """Read the token of a hash; None unless it is valid now. One statement."""

    def touch(self, id: str, now: Instant | None = None) -> Op[None]:
        """Note that a token was used, to the minute. One statement."""

    def revoke(self, id: str, now: Instant | None = None) -> Op[TokenRecord | None]:
        """Make a token invalid from now on; None when there is none that is not revoked. One statement."""

    def page(self, limit: int) -> Op[list[TokenRecord]]:
        """Read tokens, the youngest first. One statement."""

    def exist(self) -> Op[bool]:
        """Say whether any token was ever made. One statement."""
