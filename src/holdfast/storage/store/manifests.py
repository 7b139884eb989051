"""Manifests of the archive, over named statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.core.instants import Instant
from holdfast.core.manifest import ArchivedObject, Manifest, ManifestState, ManifestTotals
from holdfast.storage.operation import Op, Row, Statement, Value
from holdfast.storage.store.params import document, record_of, records_of, texts

_objects = msgspec.json.Decoder(list[ArchivedObject])


def _manifest(row: Row) -> Manifest:
    found = record_of(Manifest, (*row[:5], "[]", *row[6:]))
    return msgspec.structs.replace(found, objects=_objects.decode(row[5]))


class ManifestStore:
    """Manifests, as people and runs look for them."""

    def get(self, id: str) -> Op[Manifest | None]:
        """Read one. One statement."""
        return _one((yield Statement("manifest_get", {"id": id})))

    def find(self, source: str, period: str, part: int) -> Op[Manifest | None]:
        """Read one by what it covers. One statement."""
        given: dict[str, Value] = {"source": source, "period": period, "part": part}
        return _one((yield Statement("manifest_find", given)))

    def parts(self, source: str, period: str) -> Op[list[Manifest]]:
        """Read all parts of a period, in order. One statement."""
        rows = yield Statement("manifest_parts", {"source": source, "period": period})
        return [_manifest(row) for row in rows]

    def page(
        self,
        source: str | None = None,
        state: ManifestState | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Op[list[Manifest]]:
        """Read manifests, the newest period first, after the one with an id. One statement."""
        given: dict[str, Value] = {"source": source, "state": state, "limit": limit, "after": after}
        return [_manifest(row) for row in (yield Statement("manifest_page", given))]

    def eligible(self, source: str, limit: int, now: Instant | None = None) -> Op[list[Manifest]]:
        """Read the verified ones whose rows may be dropped, oldest first. One statement."""
        given: dict[str, Value] = {"source": source, "limit": limit, "now": now}
        return [_manifest(row) for row in (yield Statement("manifest_eligible", given))]

    def overdue(self, late_ms: int, limit: int, now: Instant | None = None) -> Op[list[Manifest]]:
        """Read those that did not get on for so long. One statement."""
        given: dict[str, Value] = {"late_ms": late_ms, "limit": limit, "now": now}
        return [_manifest(row) for row in (yield Statement("manifest_overdue", given))]

    def totals(self) -> Op[list[ManifestTotals]]:
        """Sum up manifests by source and state. One statement."""
        return records_of(ManifestTotals, (yield Statement("manifest_totals", {})))

    def latest(self, source: str) -> Op[Instant | None]:
        """Read when anything of a source was last verified. One statement."""
        rows = yield Statement("manifest_latest", {"source": source})
        found: Instant | None = rows[0][0]
        return found


class ArchivingStore:
    """Work on manifests. Each write needs the token under which one is held, and returns whether it still was."""

    def claim(
        self,
        id: str,
        source: str,
        period: str,
        part: int,
        definition: str,
        token: str,
        lease_ms: int,
        now: Instant | None = None,
    ) -> Op[Manifest | None]:
        """Begin an export or take over a dead one; None when another process has it or it is done. One statement."""
        given: dict[str, Value] = {
            "id": id,
            "source": source,
            "period": period,
            "part": part,
            "definition": definition,
            "token": token,
            "lease_ms": lease_ms,
            "now": now,
        }
        return _one((yield Statement("manifest_claim", given)))

    def hold(
        self,
        id: str,
        states: Sequence[ManifestState],
        token: str,
        lease_ms: int,
        now: Instant | None = None,
    ) -> Op[Manifest | None]:
        """Take a manifest in one of the states; None when another process has it. One statement."""
        given: dict[str, Value] = {
            "id": id,
            "states": texts(states),
            "token": token,
            "lease_ms": lease_ms,
            "now": now,
        }
        return _one((yield Statement("manifest_hold", given)))

    def renew(self, id: str, token: str, lease_ms: int, now: Instant | None = None) -> Op[bool]:
        """Extend the hold; last in a transaction it also proves it. One statement."""
        given: dict[str, Value] = {"id": id, "token": token, "lease_ms": lease_ms, "now": now}
        return bool((yield Statement("manifest_renew", given)))

    def mark_exported(
        self,
        id: str,
        token: str,
        objects: Sequence[ArchivedObject],
        items: int,
        definition: str,
        now: Instant | None = None,
    ) -> Op[bool]:
        """Note which objects hold the rows. One statement."""
        given: dict[str, Value] = {
            "id": id,
            "token": token,
            "objects": document(objects),
            "items": items,
            "rows": sum(each.rows for each in objects),
            "bytes": sum(each.bytes for each in objects),
            "definition": definition,
            "now": now,
        }
        return bool((yield Statement("manifest_mark_exported", given)))

    def mark_verified(
        self, id: str, token: str, keep_ms: int | None, now: Instant | None = None
    ) -> Op[bool]:
        """Note that the objects were read back and are right; release it. One statement."""
        given: dict[str, Value] = {"id": id, "token": token, "keep_ms": keep_ms, "now": now}
        return bool((yield Statement("manifest_mark_verified", given)))

    def remove_empty(self, id: str, token: str) -> Op[bool]:
        """Remove one that never held anything. One statement."""
        return bool((yield Statement("manifest_empty", {"id": id, "token": token})))

    def count_dropped(
        self, id: str, token: str, items: int, now: Instant | None = None
    ) -> Op[bool]:
        """Count items that this transaction removes. One statement."""
        given: dict[str, Value] = {"id": id, "token": token, "items": items, "now": now}
        return bool((yield Statement("manifest_count_dropped", given)))

    def mark_dropped(self, id: str, token: str, now: Instant | None = None) -> Op[bool]:
        """Note that all that could be removed is removed; release it. One statement."""
        given: dict[str, Value] = {"id": id, "token": token, "now": now}
        return bool((yield Statement("manifest_mark_dropped", given)))

    def mark_restored(
        self, id: str, token: str, keep_ms: int | None, now: Instant | None = None
    ) -> Op[bool]:
        """Note that the rows are back in their table; release it. One statement."""
        given: dict[str, Value] = {"id": id, "token": token, "keep_ms": keep_ms, "now": now}
        return bool((yield Statement("manifest_mark_restored", given)))

    def release(
        self,
        id: str,
        token: str,
        error: str | None = None,
        state: ManifestState | None = None,
        now: Instant | None = None,
    ) -> Op[bool]:
        """Give a manifest up, with the reason if it failed. One statement."""
        given: dict[str, Value] = {
            "id": id,
            "token": token,
            "error": error,
            "state": state,
            "now": now,
        }
        return bool((yield Statement("manifest_release", given)))

    def recount(
        self, counts: Iterable[dict[str, str | int]], now: Instant | None = None
    ) -> Op[None]:
        """Count chains again that a restore brought back. One statement."""
        yield Statement("archive_recount", {"rows": document(list(counts)), "now": now})


def _one(rows: list[Row]) -> Manifest | None:
    return _manifest(rows[0]) if rows else None
