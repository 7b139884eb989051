"""API tokens: 256 random bits, shown once and stored as a hash; created, listed, revoked, verified."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from typing import Any

import msgspec

from holdfast.admin.authorize import Caller, Gateway
from holdfast.admin.roles import Principal, Role
from holdfast.admin.serializers import plain
from holdfast.commands.tokens import create_token, revoke_token
from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import InvalidOption
from holdfast.core.ids import parse_id
from holdfast.core.records import NewToken, TokenRecord
from holdfast.storage.id_generator import new_id

PREFIX = "hf_"
BYTES = 32

_FORM = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}", re.ASCII)


def new_secret() -> str:
    """Create a secret; its prefix makes it recognisable to scanners and people."""
    return f"{PREFIX}{secrets.token_urlsafe(BYTES)}"


def is_secret(text: str) -> bool:
    """Whether a text could be one of our secrets; others need no query."""
    return _FORM.fullmatch(text) is not None


def hash_of(secret: str) -> str:
    """Return what is stored of a secret. So many random bits need no salt and no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_same(one: str, other: str) -> bool:
    """Compare two hashes in a time that does not depend on where they differ."""
    return hmac.compare_digest(one, other)


MOST_LISTED = 1_000
LONGEST_NAME = 100
TOUCH_EVERY_US = 60_000_000


class MadeToken(msgspec.Struct, frozen=True):
    """A new token, with the secret that is shown this once."""

    token: dict[str, Any]
    secret: str


class TokenAdmin:
    """What can be asked about tokens and done to them."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def create(
        self, caller: Caller, name: str, role: Role, lasts: Duration | None = None
    ) -> MadeToken:
        """Make a token. Raises: InvalidOption, InvalidDuration."""
        secret = new_secret()
        token = new_token(name, role, secret, lasts)
        record = await self._gateway.run(
            caller, "token.create", lambda store: create_token(store, token)
        )
        return MadeToken(shown_token(record), secret)

    async def list(self, caller: Caller) -> list[dict[str, Any]]:
        """Read tokens, newest first, without their hashes."""
        records = await self._gateway.read(
            caller, "token.list", lambda store: store.tokens.page(MOST_LISTED)
        )
        return [shown_token(each) for each in records]

    async def revoke(self, caller: Caller, id: str) -> None:
        """Make a token invalid from now on. Raises: TokenNotFound, InvalidId."""
        wanted = str(parse_id(id))
        await self._gateway.run(caller, "token.revoke", lambda store: revoke_token(store, wanted))

    async def exist(self) -> bool:
        """Whether any token was ever created."""
        return await self._gateway.read_unchecked(lambda store: store.tokens.exist())

    async def principal(self, secret: str) -> Principal | None:
        """Return the principal of a secret, None when it is invalid or expired."""
        if not is_secret(secret):
            return None
        wanted, database = hash_of(secret), self._gateway.app.database
        record = await self._gateway.read_unchecked(lambda store: store.tokens.find(wanted))
        if record is None or not is_same(record.hash, wanted):
            return None
        used_at = record.last_used_at
        if used_at is None or time.time_ns() // 1000 - used_at > TOUCH_EVERY_US:
            # The statement checks again by the database's clock; this saves the write.
            await database.run_async(database.store.tokens.touch(record.id))
        return Principal(record.name, Role.parse(record.role))


def new_token(name: str, role: Role, secret: str, lasts: Duration | None) -> NewToken:
    """Return what is written of a token. Raises: InvalidOption, InvalidDuration."""
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise InvalidOption(f"a token's name has 1 to {LONGEST_NAME} printable characters")
    lasts_ms = None if lasts is None else milliseconds(lasts)
    if lasts_ms == 0:
        raise InvalidOption("a token must not expire at once")
    return NewToken(new_id(), name, role.word, hash_of(secret), lasts_ms)


def shown_token(record: TokenRecord) -> dict[str, Any]:
    """Return a token without its hash."""
    fields = plain(record)
    del fields["hash"]
    return fields
