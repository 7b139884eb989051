"""Reading jobs and chains back: by id, in pages, under every condition of the filter language."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.records import ChainRecord, NewJob, Tail
from holdfast.storage.query import JobQuery
from holdfast.testing.conformance.stage import LEASE_MS, MAIL, SECOND, Conformance, Stage


class ReadingConformance(Conformance):
    """Records by id, and pages without gaps."""

    async def test_jobs_are_read_in_the_order_of_their_ids(self, stage: Stage) -> None:
        jobs = [await stage.start() for _ in range(3)]
        ids = [jobs[2].id, stage.new_id(), jobs[0].id]
        found = await stage.run(stage.store.jobs.get(ids))
        assert [each.id for each in found] == [jobs[0].id, jobs[2].id]

    async def test_pages_follow_one_another_from_the_newest(self, stage: Stage) -> None:
        jobs = [await stage.start() for _ in range(7)]
        assert await self._pages(stage) == [job.id for job in reversed(jobs)]

    async def test_rows_written_between_pages_neither_repeat_nor_hide_others(
        self, stage: Stage
    ) -> None:
        jobs = [await stage.start() for _ in range(7)]
        seen = await self._pages(stage, write_between=True)
        assert seen == [job.id for job in reversed(jobs)]

    async def _pages(self, stage: Stage, write_between: bool = False) -> list[str]:
        seen: list[str] = []
        before = None
        while True:
            query = JobQuery(limit=3, before=before)
            page = await stage.run(stage.store.jobs.page(query, stage.now))
            if not page:
                return seen
            seen += [each.id for each in page]
            before = page[-1].id
            if write_between:
                await stage.start()


class WalkConformance(Conformance):
    """Looking for few among many: bounded, and gone on with."""

    async def test_a_walk_looks_at_so_many_and_goes_on_from_there(self, stage: Stage) -> None:
        rare = await stage.start("rare")
        others = [await stage.start("common") for _ in range(7)]
        query = JobQuery(types=("rare",), limit=2)
        first = await stage.run(stage.store.jobs.walk(query, 3, stage.now))
        assert (first.records, first.end) == ([], others[4].id)
        chains = await stage.run(stage.store.chains.walk(query, 3, stage.now))
        assert (chains.records, chains.end) == ([], others[4].id)
        rest = msgspec.structs.replace(query, before=first.end)
        second = await stage.run(stage.store.jobs.walk(rest, 9, stage.now))
        assert ([each.id for each in second.records], second.end) == ([rare.id], None)

    async def test_what_runs_waits_or_failed_is_found_without_looking_at_the_rest(
        self, stage: Stage
    ) -> None:
        failed = await stage.start_running()
        await stage.finish_as(failed, "fail", error="ValueError: no")
        running = await stage.start_running("render")
        awaited = await stage.start("render")
        blocked = await stage.start_blocked(awaited.id, type="report")
        for _ in range(20):
            await stage.start("common")
        for state, expected in (
            ("failed", failed.id),
            ("running", running.id),
            ("blocked", blocked.id),
        ):
            query = JobQuery(states=(state,), limit=1)
            walk = await stage.run(stage.store.jobs.walk(query, 1, stage.now))
            assert [each.id for each in walk.records] == [expected], state

    async def test_a_type_that_was_never_started_is_not_looked_for(self, stage: Stage) -> None:
        for _ in range(3):
            await stage.start("common")
        query = JobQuery(type_like="rare.%")
        walk = await stage.run(stage.store.jobs.walk(query, 1, stage.now))
        assert (walk.records, walk.end) == ([], None)

    async def test_an_age_is_a_place_to_begin_and_to_end(self, stage: Stage) -> None:
        old = await stage.start()
        stage.pass_time(seconds=3_600)
        young = [await stage.start() for _ in range(5)]
        query = JobQuery(age_min_ms=1_800_000)
        walk = await stage.run(stage.store.jobs.walk(query, 1, stage.now))
        assert [each.id for each in walk.records] == [old.id]
        query = JobQuery(age_max_ms=1_800_000)
        walk = await stage.run(stage.store.jobs.walk(query, 6, stage.now))
        assert [each.id for each in walk.records] == [each.id for each in reversed(young)]
        assert walk.end is None


class ChainReadingConformance(Conformance):
    """A chain is its first job's request and its last job's result."""

    async def test_a_chain_shows_its_first_request_and_its_last_result(self, stage: Stage) -> None:
        created = stage.now
        asked = await stage.start(input='{"order": 1}', key="k")
        (first,) = await stage.claim()
        await stage.finish_as(first, "continue", output='"half"', next=stage.next_job(first))
        assert await self._get(stage, asked) == ChainRecord(
            asked.id, MAIL, "pending", "k", '{"order": 1}', None, None, 2, created, None
        )
        (second,) = await stage.claim("next")
        ended = stage.pass_time(seconds=1)
        await stage.finish_as(second, "complete", output='"whole"')
        assert await self._get(stage, asked) == ChainRecord(
            asked.id, MAIL, "completed", "k", '{"order": 1}', '"whole"', None, 2, created, ended
        )

    async def test_a_failed_chain_shows_its_error(self, stage: Stage) -> None:
        job = await stage.start_running()
        await stage.finish_as(job, "fail", error="Boom: no", output="1")
        (chain,) = await stage.run(stage.store.chains.get([job.chain_id]))
        assert (chain.state, chain.error, chain.output) == ("failed", "Boom: no", None)

    async def test_a_tail_is_the_last_job_whatever_its_state(self, stage: Stage) -> None:
        single = await stage.start("single")
        job = await stage.start_running()
        successor = stage.next_job(job)
        await stage.finish_as(job, "continue", next=successor)
        ids = [single.id, job.chain_id, stage.new_id()]
        tails = await stage.run(stage.store.chains.tails(ids))
        assert sorted(tails, key=lambda tail: tail.job_id) == [
            Tail(single.id, single.id, 0, "pending"),
            Tail(job.chain_id, successor.id, 1, "pending"),
        ]

    async def test_the_id_of_a_later_job_is_no_chain(self, stage: Stage) -> None:
        job = await stage.start_running()
        successor = stage.next_job(job)
        await stage.finish_as(job, "continue", next=successor)
        assert await stage.run(stage.store.chains.get([successor.id])) == []
        assert await stage.run(stage.store.chains.jobs(successor.id)) == []

    async def test_chains_are_paged_from_the_newest(self, stage: Stage) -> None:
        jobs = [await stage.start() for _ in range(3)]
        (first,) = await stage.claim(limit=1)
        await stage.finish_as(first, "continue", next=stage.next_job(first))
        page = await stage.run(stage.store.chains.page(JobQuery(limit=2), stage.now))
        assert [each.id for each in page] == [jobs[2].id, jobs[1].id]
        query = JobQuery(limit=2, before=page[-1].id)
        (last,) = await stage.run(stage.store.chains.page(query, stage.now))
        assert (last.id, last.jobs) == (jobs[0].id, 2)

    async def _get(self, stage: Stage, job: NewJob) -> ChainRecord:
        (chain,) = await stage.run(stage.store.chains.get([job.id, stage.new_id()]))
        return chain


CONDITIONS: list[tuple[dict[str, Any], str]] = [
    ({}, "abcdef"),
    ({"states": ("pending",)}, "af"),
    ({"states": ("running", "failed")}, "bd"),
    ({"states": ("completed",)}, "c"),
    ({"states": ("blocked", "cancelled")}, "e"),
    ({"states": ()}, ""),
    ({"types": ("mail.send", "push_send")}, "abc"),
    ({"types": ("mail.send",), "states": ("running",)}, "b"),
    ({"type_like": "mail.%"}, "abef"),
    ({"type_like": "MAIL.%"}, ""),
    ({"type_like": "push_send"}, "cd"),
    ({"type_like": r"push\_send"}, "c"),
    ({"key": "order-1"}, "a"),
    ({"key": "ORDER-1"}, ""),
    ({"key_like": "order-%"}, "a"),
    ({"key_like": "ORDER-%"}, ""),
    ({"key_like": r"order\_1"}, ""),
    ({"error_like": "%boom%"}, "d"),
    ({"error_like": "boom"}, ""),
    ({"error_like": r"%100\% sure%"}, "d"),
    ({"fingerprint": "value-error"}, "d"),
    ({"fingerprint": "Value-Error"}, ""),
    ({"fingerprint": "value"}, ""),
    ({"worker": "worker-2"}, "bd"),
    ({"worker": "worker-1"}, "c"),
    ({"attempt_min": 1}, "bcd"),
    ({"attempt_min": 2}, "d"),
    ({"attempt_max": 0}, "aef"),
    ({"attempt_min": 1, "attempt_max": 1}, "bc"),
    ({"age_min_ms": 10_000}, "abcde"),
    ({"age_max_ms": 9_999}, "f"),
    ({"age_max_ms": 0}, "f"),
    ({"age_min_ms": 10_001}, ""),
    ({"types": ("nobody's",)}, ""),
]


class FilterConformance(Conformance):
    """Every condition alone, the same for jobs and for chains."""

    @pytest.mark.parametrize(("conditions", "expected"), CONDITIONS, ids=repr)
    async def test_a_condition_holds_for_every_row_of_a_page(
        self, stage: Stage, conditions: dict[str, Any], expected: str
    ) -> None:
        letters = await self._set_up(stage)
        query = JobQuery(**conditions)
        jobs = await stage.run(stage.store.jobs.page(query, stage.now))
        assert "".join(sorted(letters[each.id] for each in jobs)) == expected
        chains = await stage.run(stage.store.chains.page(query, stage.now))
        assert "".join(sorted(letters[each.id] for each in chains)) == expected

    async def test_a_list_of_ids_is_a_condition_too(self, stage: Stage) -> None:
        jobs = [await stage.start() for _ in range(3)]
        query = JobQuery(ids=(jobs[0].id, jobs[2].id, stage.new_id()))
        found = await stage.run(stage.store.jobs.page(query, stage.now))
        assert [each.id for each in found] == [jobs[2].id, jobs[0].id]
        chains = await stage.run(stage.store.chains.page(query, stage.now))
        assert [each.id for each in chains] == [jobs[2].id, jobs[0].id]
        none = await stage.run(stage.store.jobs.page(JobQuery(ids=()), stage.now))
        assert none == []

    async def test_one_chain_is_a_condition_too(self, stage: Stage) -> None:
        job = await stage.start_running()
        successor = stage.next_job(job)
        await stage.finish_as(job, "continue", next=successor)
        await stage.start()
        query = JobQuery(chain=job.chain_id)
        jobs = await stage.run(stage.store.jobs.page(query, stage.now))
        assert [each.id for each in jobs] == [successor.id, job.id]
        (chain,) = await stage.run(stage.store.chains.page(query, stage.now))
        assert chain.id == job.chain_id

    async def _set_up(self, stage: Stage) -> dict[str, str]:
        """Six jobs that differ in everything one can ask for; return the letter of each."""
        a = await stage.start("mail.send", key="order-1", at=stage.now + 3_600 * SECOND)
        b = await stage.start("mail.send")
        c = await stage.start("push_send")
        d = await stage.start("pushxsend")
        (completed,) = await stage.claim("push_send", worker="worker-1")
        await stage.finish_as(completed, "complete")
        (failed,) = await stage.claim("pushxsend", worker="worker-2")
        await stage.finish_as(failed, "retry")
        (failed,) = await stage.claim("pushxsend", worker="worker-2")
        finish = stage.ending(
            failed,
            "fail",
            error="ValueError: Boom! 100% sure",
            fingerprint="value-error",
            worker="worker-2",
        )
        await stage.finish(finish)
        await stage.claim("mail.send", worker="worker-2", lease_ms=LEASE_MS)
        e = await stage.start_blocked(a.id, type="mail.wait")
        stage.pass_time(seconds=10)
        f = await stage.start("mail.late")
        return {job.id: letter for letter, job in zip("abcdef", (a, b, c, d, e, f), strict=True)}
