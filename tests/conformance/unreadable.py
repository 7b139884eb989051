"""Jobs that the code could not read are remembered until they can be read or have ended."""

from __future__ import annotations

from holdfast.core.records import UnreadableGroup
from tests.conformance.harness import MAIL, SECOND, Conformance, StoreFixture

_FIRST = "00000000-0000-0000-0000-000000000000"


class UnreadableConformance(Conformance):
    """What waits for other code."""

    async def test_a_job_is_remembered_with_its_first_time_and_last_error(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start(version=3)
        store, began = fixture.store.unreadable, fixture.now
        assert await fixture.run(store.note(job.id, MAIL, "first", fixture.now)) == 0
        fixture.pass_time(seconds=7)
        assert await fixture.run(store.note(job.id, MAIL, "last", fixture.now)) == 7 * SECOND
        assert await fixture.run(store.since(job.id)) == began
        (found,) = await fixture.run(store.page([MAIL, "other"], _FIRST, 10))
        assert (found.id, found.error, found.at, found.waits) == (job.id, "last", began, True)
        assert (found.version, found.input) == (3, job.input)
        assert await fixture.run(store.groups()) == [UnreadableGroup(MAIL, 1, began)]
        assert [await fixture.run(store.count(limit)) for limit in (0, 10)] == [0, 1]
        assert await fixture.run(store.page(["other"], _FIRST, 10)) == []
        assert await fixture.run(store.page([MAIL], found.id, 10)) == []

    async def test_those_that_wait_for_a_key_come_before_others_of_their_type(
        self, fixture: StoreFixture
    ) -> None:
        missing = "sealed with the key 'k-1', which this process does not have"
        for error in ("no field", missing):
            job = await fixture.start()
            await fixture.run(fixture.store.unreadable.note(job.id, MAIL, error, fixture.now))
        assert await fixture.run(fixture.store.unreadable.groups()) == [
            UnreadableGroup(MAIL, 1, fixture.now, missing),
            UnreadableGroup(MAIL, 1, fixture.now),
        ]

    async def test_one_that_has_ended_no_longer_counts_and_can_be_forgotten(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.start()
        store = fixture.store.unreadable
        await fixture.run(store.note(job.id, MAIL, "first", fixture.now))
        await fixture.run(fixture.store.chains.delete([job.id]))
        (found,) = await fixture.run(store.page([MAIL], _FIRST, 10))
        assert (found.waits, found.input) == (False, None)
        assert await fixture.run(store.groups()) == []
        assert await fixture.run(store.count(10)) == 0
        await fixture.run(store.forget([job.id]))
        assert await fixture.run(store.since(job.id)) is None
        assert await fixture.run(store.page([MAIL], _FIRST, 10)) == []
