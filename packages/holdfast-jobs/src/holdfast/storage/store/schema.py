"""The database itself: its schema, identity and clock, and what it says of its own state."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.instants import Instant
from holdfast.core.records import AppliedMigration, Identity, Swept
from holdfast.storage.operation import Op, Statement, Value
from holdfast.storage.store.params import (
    document,
    fetch,
    fetch_one,
    fetch_value,
    resolve_now,
    texts,
)


class DatabasePlace(msgspec.Struct, frozen=True):
    """Where this process finds the database: the server's addresses, none for a file, and the declared environment."""

    hosts: tuple[str, ...] = ()
    environment: str | None = None

    @property
    def params(self) -> dict[str, Value]:
        """Both as parameters of a statement."""
        return {"hosts": texts(self.hosts), "environment": self.environment}


ANYWHERE = DatabasePlace()


class SchemaStore:
    """The schema's own records."""

    def __init__(self, place: DatabasePlace = ANYWHERE) -> None:
        self._place = place

    def applied(self) -> Op[list[AppliedMigration]]:
        """Read the migrations applied, in order. One statement."""
        return fetch(AppliedMigration, "schema_version")

    def record(self, migration: AppliedMigration) -> Op[None]:
        """Record a migration as applied."""
        yield Statement("schema_record", msgspec.structs.asdict(migration))

    def identity(self) -> Op[Identity | None]:
        """Read which database this is and whether everything is paused. One statement."""
        return fetch_one(Identity, "identity_get", **self._place.params)

    def identify(self, id: str) -> Op[None]:
        """Give a new database its identity; an existing one stays. One statement."""
        yield Statement("identity_put", {"id": id, **self._place.params})

    def adopt(self, id: str) -> Op[None]:
        """Give a copied database a new identity under its present name, place and environment. One statement.

        Fences grow above those of the server that held these rows before.
        """
        yield Statement("identity_adopt", {"id": id, **self._place.params})

    def note_server(self) -> Op[None]:
        """Record the server, and how it is reached from here, where that is new and this is no copy."""
        identity = yield from self.identity()
        if identity is not None and not identity.is_recorded and identity.copied is None:
            yield Statement("identity_note_server", self._place.params)

    def pause(self, paused: bool, by: str | None, now: Instant | None = None) -> Op[None]:
        """Pause or resume everything. One statement."""
        yield Statement("pause_all", {"paused": paused, "by": by, "now": now})

    def clock(self, now: Instant | None = None) -> Op[Instant]:
        """Read the database's clock, unless the time is given. One statement."""
        return resolve_now(now)

    def confirm(self) -> Op[None]:
        """Have the commit wait until what this transaction has read would survive a failover. One statement."""
        yield Statement("answer_confirm", {})

    def notify(self, channel: str, payloads: Sequence[str]) -> Op[None]:
        """Have hints sent with the caller's commit, where the database can do that. One statement."""
        yield Statement("hint_send", {"channel": channel, "payloads": document(payloads)})


class ServerStatsStore:
    """What the database says of itself."""

    def document(self) -> Op[str]:
        """Read the dialect's own figures as one JSON object. It only reads."""
        return fetch_value("vitals")

    def privileges(self) -> Op[str]:
        """Read what roles were granted on the tables, as a JSON object. One statement."""
        return fetch_value("privileges")

    def sweep(self, few: int) -> Op[Swept | None]:
        """Remove dead rows where there are more than a few; None where there was nothing to do, or no right to do it.

        Runs outside a transaction only.
        """
        before, allowed = (yield Statement("dead_rows", {}))[0]
        if before <= few or not allowed:
            return None
        yield Statement("sweep", {})
        left, _ = (yield Statement("dead_rows", {}))[0]
        return Swept(before, left)
