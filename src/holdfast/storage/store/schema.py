"""The schema's own records, over named statements."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.records import AppliedMigration, Identity, Instant
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store.params import document


class Schema:
    """See `storage.port.SchemaStore`."""

    def applied(self) -> Op[list[AppliedMigration]]:
        rows = yield Statement("schema_version", {})
        return [AppliedMigration(*row) for row in rows]

    def record(self, migration: AppliedMigration) -> Op[None]:
        yield Statement("schema_record", msgspec.structs.asdict(migration))

    def identity(self) -> Op[Identity | None]:
        rows = yield Statement("identity_get", {})
        if not rows:
            return None
        id, recorded, name, paused, by, at = rows[0]
        return Identity(id, recorded, name, bool(paused), by, at)

    def identify(self, id: str) -> Op[None]:
        yield Statement("identity_put", {"id": id})

    def adopt(self, id: str) -> Op[None]:
        yield Statement("identity_adopt", {"id": id})

    def pause(self, paused: bool, by: str | None, now: Instant | None = None) -> Op[None]:
        yield Statement("pause_all", {"paused": paused, "by": by, "now": now})

    def clock(self) -> Op[Instant]:
        rows = yield Statement("clock", {})
        instant: Instant = rows[0][0]
        return instant

    def notify(self, channel: str, payloads: Sequence[str]) -> Op[None]:
        yield Statement("hint_send", {"channel": channel, "payloads": document(payloads)})
