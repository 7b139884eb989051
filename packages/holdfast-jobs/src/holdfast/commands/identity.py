"""Which database this is: jobs of a copy under another name do not run until it is adopted."""

from __future__ import annotations

from holdfast.commands.change import Change, Effect
from holdfast.core.errors import CopiedDatabase
from holdfast.core.records import Identity
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


def check_identity(store: Store) -> Op[Identity | None]:
    """Return the database's identity, None for one that never got any. Raises: CopiedDatabase."""
    identity = yield from store.schema.identity()
    if identity is not None and identity.recorded_name != identity.name:
        raise CopiedDatabase(
            f"this database was created as {identity.recorded_name} and is now named {identity.name}"
        )
    return identity


def adopt_database(store: Store, id: str) -> Op[Change[Identity]]:
    """Allow the jobs of a copied database to run, under its present name and a new id."""
    was = yield from store.schema.identity()
    assert was is not None
    yield from store.schema.adopt(id)
    yield from store.schema.note_server()
    before = {"name": was.recorded_name, "id": was.id}
    return Change(was, [Effect("database", before, {"name": was.name})])
