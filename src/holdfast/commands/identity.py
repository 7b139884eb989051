"""Which database this is: a copy under another name is not worked off unasked."""

from __future__ import annotations

from holdfast.core.errors import CopiedDatabase
from holdfast.core.records import Identity
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


def check_identity(store: Store) -> Op[Identity | None]:
    """Return the database's identity, None for one that never got any. Raises: CopiedDatabase."""
    identity = yield from store.schema.identity()
    if identity is not None and identity.recorded_name != identity.name:
        raise CopiedDatabase(
            f"this database was made as {identity.recorded_name} and is now called {identity.name}"
        )
    return identity
