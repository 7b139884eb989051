"""Manifests of the archive, over named statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.core.instants import Instant
from holdfast.storage.operation import Op, Statement
from holdfast.storage.store.params import document, fetch, fetch_one, has_rows, texts
from holdfast_archive.manifest import ArchivedObject, Manifest, ManifestState, ManifestTotals


class ManifestStore:
    """Manifests, as people and runs look for them."""

    def get(self, id: str) -> Op[Manifest | None]:
        """Read one. One statement."""
        return fetch_one(Manifest, "manifest_get", id=id)

    def find(self, source: str, period: str, part: int) -> Op[Manifest | None]:
        """Read one by what it covers. One statement."""
        return fetch_one(Manifest, "manifest_find", source=source, period=period, part=part)

    def parts(self, source: str, period: str) -> Op[list[Manifest]]:
        """Read all parts of a period, in order. One statement."""
        return fetch(Manifest, "manifest_parts", source=source, period=period)

    def page(
        self,
        source: str | None = None,
        state: ManifestState | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Op[list[Manifest]]:
        """Read manifests, the newest period first, after the one with an id. One statement."""
        return fetch(
            Manifest, "manifest_page", source=source, state=state, limit=limit, after=after
        )

    def eligible(self, source: str, limit: int, now: Instant | None = None) -> Op[list[Manifest]]:
        """Read the verified ones whose rows may be dropped, oldest first. One statement."""
        return fetch(Manifest, "manifest_eligible", source=source, limit=limit, now=now)

    def overdue(self, late_ms: int, limit: int, now: Instant | None = None) -> Op[list[Manifest]]:
        """Read those that did not get on for so long. One statement."""
        return fetch(Manifest, "manifest_overdue", late_ms=late_ms, limit=limit, now=now)

    def totals(self) -> Op[list[ManifestTotals]]:
        """Sum up manifests by source and state. One statement."""
        return fetch(ManifestTotals, "manifest_totals")


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
        return fetch_one(
            Manifest,
            "manifest_claim",
            id=id,
            source=source,
            period=period,
            part=part,
            definition=definition,
            token=token,
            lease_ms=lease_ms,
            now=now,
        )

    def hold(
        self,
        id: str,
        states: Sequence[ManifestState],
        token: str,
        lease_ms: int,
        now: Instant | None = None,
    ) -> Op[Manifest | None]:
        """Take a manifest in one of the states; None when another process has it. One statement."""
        return fetch_one(
            Manifest,
            "manifest_hold",
            id=id,
            states=texts(states),
            token=token,
            lease_ms=lease_ms,
            now=now,
        )

    def renew(self, id: str, token: str, lease_ms: int, now: Instant | None = None) -> Op[bool]:
        """Extend the hold; last in a transaction it also proves it. One statement."""
        return has_rows("manifest_renew", id=id, token=token, lease_ms=lease_ms, now=now)

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
        return has_rows(
            "manifest_mark_exported",
            id=id,
            token=token,
            objects=document(objects),
            items=items,
            rows=sum(each.rows for each in objects),
            bytes=sum(each.bytes for each in objects),
            definition=definition,
            now=now,
        )

    def mark_verified(
        self, id: str, token: str, keep_ms: int | None, now: Instant | None = None
    ) -> Op[bool]:
        """Note that the objects were read back and are right; release it. One statement."""
        return has_rows("manifest_mark_verified", id=id, token=token, keep_ms=keep_ms, now=now)

    def remove_empty(self, id: str, token: str) -> Op[bool]:
        """Remove one that never held anything. One statement."""
        return has_rows("manifest_empty", id=id, token=token)

    def count_dropped(
        self, id: str, token: str, items: int, now: Instant | None = None
    ) -> Op[bool]:
        """Count items that this transaction removes. One statement."""
        return has_rows("manifest_count_dropped", id=id, token=token, items=items, now=now)

    def mark_dropped(self, id: str, token: str, now: Instant | None = None) -> Op[bool]:
        """Note that all that could be removed is removed; release it. One statement."""
        return has_rows("manifest_mark_dropped", id=id, token=token, now=now)

    def mark_restored(
        self, id: str, token: str, keep_ms: int | None, now: Instant | None = None
    ) -> Op[bool]:
        """Note that the rows are back in their table; release it. One statement."""
        return has_rows("manifest_mark_restored", id=id, token=token, keep_ms=keep_ms, now=now)

    def release(
        self,
        id: str,
        token: str,
        error: str | None = None,
        state: ManifestState | None = None,
        now: Instant | None = None,
    ) -> Op[bool]:
        """Give a manifest up, with the reason if it failed. One statement."""
        return has_rows("manifest_release", id=id, token=token, error=error, state=state, now=now)

    def recount(
        self, counts: Iterable[dict[str, str | int]], now: Instant | None = None
    ) -> Op[None]:
        """Count chains again that a restore brought back. One statement."""
        yield Statement("archive_recount", {"rows": document(list(counts)), "now": now})


MANIFESTS = ManifestStore()
ARCHIVING = ArchivingStore()
"""Both are without state: what differs by dialect is in the statements."""
