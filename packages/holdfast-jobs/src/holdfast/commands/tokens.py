"""Commands on tokens of the API: create one, revoke one. Only a hash of the secret is stored."""

from __future__ import annotations

from holdfast.commands.change import Change, Effect
from holdfast.core.errors import TokenNotFound
from holdfast.core.records import NewToken, TokenRecord
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


def create_token(store: Store, token: NewToken) -> Op[Change[TokenRecord]]:
    """Store a new token."""
    record = yield from store.tokens.create(token)
    after = {"name": token.name, "role": token.role}
    return Change(record, [Effect(f"token {record.id}", None, after)])


def revoke_token(store: Store, id: str) -> Op[Change[None]]:
    """Make a token invalid from now on. Raises: TokenNotFound."""
    record = yield from store.tokens.revoke(id)
    if record is None:
        raise TokenNotFound(f"there is no token {id} that is not revoked")
    return Change(None, [Effect(f"token {id}", {"name": record.name, "role": record.role})])
