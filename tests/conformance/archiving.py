"""Manifests of the archive: held under a token, and changed by nobody without it."""

from __future__ import annotations

from holdfast_archive.manifest import ArchivedObject, Manifest
from holdfast_archive.manifest_store import ARCHIVING, MANIFESTS
from tests.conformance.harness import Conformance, StoreFixture

LEASE_MS = 60_000
OBJECT = ArchivedObject("deliveries", "deliveries/2026-10/0-ab.parquet", 3, 100, "ab")


class ArchivingConformance(Conformance):
    """Work on manifests."""

    async def _claim(self, fixture: StoreFixture, token: str, part: int = 0) -> Manifest | None:
        id = fixture.new_id()
        op = ARCHIVING.claim(id, "deliveries", "2026-10", part, "{}", token, LEASE_MS, fixture.now)
        return await fixture.run(op)

    async def _verify_manifest(
        self, fixture: StoreFixture, keep_ms: int | None = 1_000
    ) -> Manifest:
        store, token = ARCHIVING, fixture.new_id()
        claimed = await self._claim(fixture, token)
        assert claimed is not None
        op = store.mark_exported(claimed.id, token, [OBJECT], 3, "{}", fixture.now)
        assert await fixture.run(op)
        assert await fixture.run(store.mark_verified(claimed.id, token, keep_ms, fixture.now))
        found = await fixture.run(MANIFESTS.get(claimed.id))
        assert found is not None
        return found

    async def test_a_period_is_exported_by_one_and_taken_over_when_its_lease_has_expired(
        self, fixture: StoreFixture
    ) -> None:
        first, second = fixture.new_id(), fixture.new_id()
        claimed = await self._claim(fixture, first)
        assert claimed is not None
        assert (claimed.name, claimed.state) == ("deliveries/2026-10/0", "exporting")
        assert await self._claim(fixture, second) is None
        fixture.pass_time(seconds=61)
        taken = await self._claim(fixture, second)
        assert taken is not None
        assert taken.id == claimed.id
        store = ARCHIVING
        assert not await fixture.run(store.renew(claimed.id, first, LEASE_MS, fixture.now))
        assert not await fixture.run(
            store.mark_exported(claimed.id, first, [OBJECT], 3, "{}", fixture.now)
        )
        assert await fixture.run(store.renew(claimed.id, second, LEASE_MS, fixture.now))

    async def test_a_verified_manifest_is_dropped_under_a_token_and_restored(
        self, fixture: StoreFixture
    ) -> None:
        found = await self._verify_manifest(fixture)
        assert (found.state, found.rows, found.bytes, found.objects) == (
            "verified",
            3,
            100,
            [OBJECT],
        )
        store, token, other = ARCHIVING, fixture.new_id(), fixture.new_id()
        eligible = MANIFESTS.eligible("deliveries", 10, fixture.now)
        assert await fixture.run(eligible) == []
        fixture.pass_time(seconds=1)
        eligible = MANIFESTS.eligible("deliveries", 10, fixture.now)
        assert [each.id for each in await fixture.run(eligible)] == [found.id]
        assert await fixture.run(store.hold(found.id, ["failed"], token, 1, fixture.now)) is None
        assert await fixture.run(store.hold(found.id, ["verified"], token, LEASE_MS, fixture.now))
        assert not await fixture.run(store.count_dropped(found.id, other, 2, fixture.now))
        assert await fixture.run(store.count_dropped(found.id, token, 2, fixture.now))
        assert await fixture.run(store.mark_dropped(found.id, token, fixture.now))
        gone = await fixture.run(MANIFESTS.find("deliveries", "2026-10", 0))
        assert gone is not None
        assert (gone.state, gone.dropped, gone.token) == ("dropped", 2, None)
        assert await self._claim(fixture, other) is None
        assert await fixture.run(store.hold(found.id, ["dropped"], token, LEASE_MS, fixture.now))
        assert await fixture.run(store.mark_restored(found.id, token, None, fixture.now))
        (back,) = await fixture.run(MANIFESTS.parts("deliveries", "2026-10"))
        assert (back.state, back.dropped, back.drop_eligible_at) == ("verified", 0, None)

    async def test_a_failure_is_kept_with_its_reason_and_counted(
        self, fixture: StoreFixture
    ) -> None:
        store, token = ARCHIVING, fixture.new_id()
        claimed = await self._claim(fixture, token)
        assert claimed is not None
        op = store.release(claimed.id, token, "HF111: missing", "failed", fixture.now)
        assert await fixture.run(op)
        (total,) = await fixture.run(MANIFESTS.totals())
        assert (total.source, total.state, total.errors) == ("deliveries", "failed", 1)
        assert await fixture.run(fixture.store.retention.latest_archived()) is None
        fixture.pass_time(seconds=10)
        late = await fixture.run(MANIFESTS.overdue(5_000, 10, fixture.now))
        assert [each.error for each in late] == ["HF111: missing"]
        again = await self._claim(fixture, token)
        assert again is not None
        assert again.id == claimed.id

    async def test_a_supplement_that_holds_nothing_leaves_no_trace(
        self, fixture: StoreFixture
    ) -> None:
        token = fixture.new_id()
        claimed = await self._claim(fixture, token, part=1)
        assert claimed is not None
        remove = ARCHIVING.remove_empty
        assert not await fixture.run(remove(claimed.id, fixture.new_id()))
        assert await fixture.run(remove(claimed.id, token))
        assert await fixture.run(MANIFESTS.page()) == []

    async def test_a_list_goes_on_after_the_last_one_seen(self, fixture: StoreFixture) -> None:
        for part in range(5):
            await self._claim(fixture, fixture.new_id(), part)
        page = MANIFESTS.page
        first = await fixture.run(page("deliveries", None, 3))
        rest = await fixture.run(page("deliveries", "exporting", 3, first[-1].id))
        assert [each.part for each in first + rest] == [4, 3, 2, 1, 0]
        assert await fixture.run(page("other")) == []
