"""Which database this is: jobs of a copy do not run until it is adopted."""

from __future__ import annotations

from holdfast.commands.change import Change, Effect
from holdfast.core.errors import CopiedDatabase
from holdfast.core.records import Identity
from holdfast.storage.operation import Op
from holdfast.storage.store import Store


def check_identity(store: Store) -> Op[Identity | None]:
    """Return the database's identity, None for one that never got any; record its server. Raises: CopiedDatabase."""
    identity = yield from store.schema.identity()
    if identity is None:
        return None
    if identity.copied:
        raise CopiedDatabase(identity.copied)
    if not identity.is_recorded:
        yield from store.schema.note_server()
    return identity


def adopt_database(store: Store, id: str) -> Op[Change[Identity]]:
    """Allow the jobs of a copied database to run where it is now, under a new id."""
    was = yield from store.schema.identity()
    assert was is not None
    yield from store.schema.adopt(id)
    before = {"name": was.recorded_name, "id": was.id, "environment": was.recorded_environment}
    after = {"name": was.name, "id": id, "environment": was.environment}
    return Change(was, [Effect("database", before, after)])
