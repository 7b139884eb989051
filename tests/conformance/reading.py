"""Reading jobs and chains by id, in pages and under every filter, dead letters by their kind, and the audit."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.commands.attempts import reap_leases
from holdfast.commands.jobs import redrive_jobs
from holdfast.core.records import AuditRecord, ChainRecord, FinishKind, NewJob, Tail
from holdfast.core.statistics import DeadGroup, WaitStep
from holdfast.storage.operation import at
from holdfast.storage.store.pagination import JobQuery
from tests.conformance.harness import LEASE_MS, MAIL, SECOND, Conformance, StoreFixture


class ReadingConformance(Conformance):
    """Records by id, and pages without gaps."""

    async def test_jobs_are_read_in_the_order_of_their_ids(self, fixture: StoreFixture) -> None:
        jobs = [await fixture.start() for _ in range(3)]
        ids = [jobs[2].id, fixture.new_id(), jobs[0].id]
        found = await fixture.run(fixture.store.jobs.get(ids))
        assert [each.id for each in found] == [jobs[0].id, jobs[2].id]

    async def test_ids_are_found_by_their_beginning_and_by_their_end(
        self, fixture: StoreFixture
    ) -> None:
        ids = [(await fixture.start()).id for _ in range(3)]
        digits = [id.replace("-", "") for id in ids]
        find = fixture.store.jobs.ids_like
        assert await fixture.run(find(digits[1][:-1], 5)) == [ids[1]]
        assert await fixture.run(find(digits[1][-12:], 5)) == [ids[1]]
        assert await fixture.run(find(digits[1][-12:], 5, chains=True)) == [ids[1]]
        assert await fixture.run(find(digits[0][:6], 2)) == [ids[2], ids[1]]
        assert await fixture.run(find("fffffff", 5)) == []

    async def test_pages_follow_one_another_from_the_newest(self, fixture: StoreFixture) -> None:
        jobs = [await fixture.start() for _ in range(7)]
        assert await self._pages(fixture) == [job.id for job in reversed(jobs)]

    async def test_rows_written_between_pages_neither_repeat_nor_hide_others(
        self, fixture: StoreFixture
    ) -> None:
        jobs = [await fixture.start() for _ in range(7)]
        seen = await self._pages(fixture, write_between=True)
        assert seen == [job.id for job in reversed(jobs)]

    async def _pages(self, fixture: StoreFixture, write_between: bool = False) -> list[str]:
        seen: list[str] = []
        before = None
        while True:
            query = JobQuery(limit=3, before=before)
            page = await fixture.run(fixture.store.jobs.page(query, fixture.now))
            if not page:
                return seen
            seen += [each.id for each in page]
            before = page[-1].id
            if write_between:
                await fixture.start()


class WalkConformance(Conformance):
    """Looking for few among many: bounded, and gone on with."""

    async def test_a_walk_looks_at_so_many_and_goes_on_from_there(
        self, fixture: StoreFixture
    ) -> None:
        rare = await fixture.start("rare")
        others = [await fixture.start("common") for _ in range(7)]
        query = JobQuery(types=("rare",), limit=2)
        first = await fixture.run(fixture.store.jobs.walk(query, 3, fixture.now))
        assert (first.records, first.end) == ([], others[4].id)
        chains = await fixture.run(fixture.store.chains.walk(query, 3, fixture.now))
        assert (chains.records, chains.end) == ([], others[4].id)
        rest = msgspec.structs.replace(query, before=first.end)
        second = await fixture.run(fixture.store.jobs.walk(rest, 9, fixture.now))
        assert ([each.id for each in second.records], second.end) == ([rare.id], None)

    async def test_what_runs_waits_or_failed_is_found_without_looking_at_the_rest(
        self, fixture: StoreFixture
    ) -> None:
        failed = await fixture.finish_new("fail", error="ValueError: no")
        running = await fixture.start_running("render")
        awaited = await fixture.start("render")
        blocked = await fixture.start_blocked(awaited.id, type="report")
        for _ in range(20):
            await fixture.start("common")
        for state, expected in (
            ("failed", failed.id),
            ("running", running.id),
            ("blocked", blocked.id),
        ):
            query = JobQuery(states=(state,), limit=1)
            walk = await fixture.run(fixture.store.jobs.walk(query, 1, fixture.now))
            assert [each.id for each in walk.records] == [expected], state

    async def test_a_type_that_was_never_started_is_not_looked_for(
        self, fixture: StoreFixture
    ) -> None:
        for _ in range(3):
            await fixture.start("common")
        query = JobQuery(type_like="rare.%")
        walk = await fixture.run(fixture.store.jobs.walk(query, 1, fixture.now))
        assert (walk.records, walk.end) == ([], None)

    async def test_words_are_found_in_what_people_know_a_job_by(
        self, fixture: StoreFixture
    ) -> None:
        failed = await fixture.finish_new(
            "fail", "mail.send", error="TimeoutError: smtp_1 did not answer"
        )
        keyed = await fixture.start("render", key="order:7")
        other = await fixture.start("render.100%")
        store, now = fixture.store, fixture.now
        for words, expected in (
            (("%timeouterror%",), {failed.id}),
            (("%MAIL%", "%smtp\\_1%"), {failed.id}),
            (("%mail%", "%order%"), set()),
            (("%order:7%",), {keyed.id}),
            (("%100\\%%",), {other.id}),
            ((f"%{other.id[-9:]}%",), {other.id}),
        ):
            query = JobQuery(words=words)
            jobs = await fixture.run(store.jobs.walk(query, 100, now))
            assert {each.id for each in jobs.records} == expected, words
            chains = await fixture.run(store.chains.walk(query, 100, now))
            assert {each.id for each in chains.records} == expected, words
            matching = await fixture.run(store.jobs.matching(query, 100, now))
            assert [each.id for each in matching.records] == [each.id for each in jobs.records]

    async def test_ended_jobs_of_a_type_are_read_with_their_times(
        self, fixture: StoreFixture
    ) -> None:
        first = await fixture.start_running("render")
        fixture.pass_time(seconds=3)
        await fixture.finish_as(first, "complete", started_at=fixture.now - 2_000_000)
        await fixture.finish_new("complete", "common")
        failed = await fixture.finish_new("fail", "render", error="ValueError: no")
        read = fixture.store.statistics.finished
        found = await fixture.run(read("render", 10, 100))
        assert [(each.id, each.state) for each in found] == [
            (failed.id, "failed"),
            (first.id, "completed"),
        ]
        assert (found[1].ran_us, found[1].waited_us) == (2_000_000, 1_000_000)
        assert not found[1].was_blocked
        assert [each.was_tried for each in found] == [False, False]
        assert [each.id for each in await fixture.run(read("render", 1, 100))] == [failed.id]
        assert [each.id for each in await fixture.run(read("common", 10, 1))] == []

    async def test_the_wait_of_a_redriven_job_is_not_counted_from_its_creation(
        self, fixture: StoreFixture
    ) -> None:
        job = await fixture.finish_new("fail", "render", error="ValueError: no")
        fixture.pass_time(seconds=3_600)
        await fixture.run(at(redrive_jobs(fixture.store, [job.id]), fixture.now))
        await fixture.finish_next("complete", "render", started_at=fixture.now)
        (found,) = await fixture.run(fixture.store.statistics.finished("render", 10, 100))
        assert (found.attempts, found.was_tried, found.waited_us) == (1, True, None)
        step = WaitStep(
            0, "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"
        )
        assert await fixture.run(fixture.store.statistics.waits([step], 10)) == []

    async def test_the_quiet_that_a_debounced_job_waits_for_is_no_wait(
        self, fixture: StoreFixture
    ) -> None:
        await fixture.start("render", debounced=True)
        fixture.pass_time(seconds=60)
        (job,) = await fixture.claim("render")
        await fixture.finish_as(job, "complete", started_at=fixture.now)
        (found,) = await fixture.run(fixture.store.statistics.finished("render", 10, 100))
        assert (found.attempts, found.waited_us) == (1, None)

    async def test_jobs_whose_worker_died_are_counted_along_their_line(
        self, fixture: StoreFixture
    ) -> None:
        for _ in range(3):
            await fixture.start_running("render")
        fixture.pass_time(seconds=3_600)
        await fixture.run(reap_leases(fixture.store, now=fixture.now))
        fixture.pass_time(seconds=3_600)
        await fixture.start("render")
        jobs = await fixture.run(fixture.store.jobs.walk(JobQuery(), 100, fixture.now))
        pending = sorted(
            (each for each in jobs.records if each.crashes),
            key=lambda each: (each.available_at or 0, each.id),
        )
        before = [
            await fixture.run(fixture.store.attempts.crashed_before(each.id)) for each in pending
        ]
        assert before == [0, 1, 2]

    async def test_a_series_counts_what_became_of_attempts(self, fixture: StoreFixture) -> None:
        kinds: list[FinishKind] = ["complete", "fail", "cancel", "retry", "snooze", "release"]
        await fixture.start_all([fixture.job() for _ in range(len(kinds) + 1)])
        jobs = await fixture.claim()
        await fixture.finish(*(fixture.finish_of(*each) for each in zip(jobs, kinds, strict=False)))
        fixture.pass_time(ms=LEASE_MS)
        assert [each.id for each in (await fixture.reap()).reaped] == [jobs[-1].id]
        points = await fixture.run(
            fixture.store.statistics.series(3_600_000, 3_600_000, fixture.now)
        )
        assert sum(each.started for each in points) == len(jobs)
        assert [
            sum(getattr(each, count) for each in points)
            for count in ("completed", "failed", "cancelled", "retried", "reaped")
        ] == [1] * 5

    async def test_a_series_may_be_of_one_type(self, fixture: StoreFixture) -> None:
        for type in ("render", "render", "common"):
            await fixture.finish_new("complete", type)
        series = fixture.store.statistics.series
        everything = await fixture.run(series(3_600_000, 3_600_000, fixture.now))
        render = await fixture.run(series(3_600_000, 3_600_000, fixture.now, type="render"))
        assert sum(each.completed for each in everything) == 3
        assert sum(each.completed for each in render) == 2

    async def test_an_age_is_a_place_to_begin_and_to_end(self, fixture: StoreFixture) -> None:
        old = await fixture.start()
        fixture.pass_time(seconds=3_600)
        young = [await fixture.start() for _ in range(5)]
        query = JobQuery(age_min_ms=1_800_000)
        walk = await fixture.run(fixture.store.jobs.walk(query, 1, fixture.now))
        assert [each.id for each in walk.records] == [old.id]
        query = JobQuery(age_max_ms=1_800_000)
        walk = await fixture.run(fixture.store.jobs.walk(query, 6, fixture.now))
        assert [each.id for each in walk.records] == [each.id for each in reversed(young)]
        assert walk.end is None


class ChainReadingConformance(Conformance):
    """A chain is its first job's request and its last job's result."""

    async def test_a_chain_shows_its_first_request_and_its_last_result(
        self, fixture: StoreFixture
    ) -> None:
        created = fixture.now
        asked = await fixture.start(input='{"order": 1}', key="k")
        await fixture.finish_next("continue", output='"half"')
        assert await self._get(fixture, asked) == ChainRecord(
            asked.id, MAIL, "pending", "k", '{"order": 1}', None, None, 2, created, None
        )
        (second,) = await fixture.claim("next")
        ended = fixture.pass_time(seconds=1)
        await fixture.finish_as(second, "complete", output='"whole"')
        assert await self._get(fixture, asked) == ChainRecord(
            asked.id, MAIL, "completed", "k", '{"order": 1}', '"whole"', None, 2, created, ended
        )

    async def test_a_failed_chain_shows_its_error(self, fixture: StoreFixture) -> None:
        job = await fixture.finish_new("fail", error="Boom: no", output="1")
        (chain,) = await fixture.run(fixture.store.chains.get([job.chain_id]))
        assert (chain.state, chain.error, chain.output) == ("failed", "Boom: no", None)

    async def test_a_tail_is_the_last_job_whatever_its_state(self, fixture: StoreFixture) -> None:
        single = await fixture.start("single")
        job = await fixture.start_running()
        successor = fixture.next_job(job)
        await fixture.finish_as(job, "continue", next=successor)
        ids = [single.id, job.chain_id, fixture.new_id()]
        tails = await fixture.run(fixture.store.chains.tails(ids))
        assert sorted(tails, key=lambda tail: tail.job_id) == [
            Tail(single.id, single.id, 0, "pending"),
            Tail(job.chain_id, successor.id, 1, "pending"),
        ]

    async def test_the_id_of_a_later_job_is_no_chain(self, fixture: StoreFixture) -> None:
        job = await fixture.start_running()
        successor = fixture.next_job(job)
        await fixture.finish_as(job, "continue", next=successor)
        assert await fixture.run(fixture.store.chains.get([successor.id])) == []
        assert await fixture.run(fixture.store.chains.jobs(successor.id)) == []

    async def test_chains_are_paged_from_the_newest(self, fixture: StoreFixture) -> None:
        jobs = [await fixture.start() for _ in range(3)]
        (first,) = await fixture.claim(limit=1)
        await fixture.finish_as(first, "continue", next=fixture.next_job(first))
        page = await fixture.run(fixture.store.chains.page(JobQuery(limit=2), fixture.now))
        assert [each.id for each in page] == [jobs[2].id, jobs[1].id]
        query = JobQuery(limit=2, before=page[-1].id)
        (last,) = await fixture.run(fixture.store.chains.page(query, fixture.now))
        assert (last.id, last.jobs) == (jobs[0].id, 2)

    async def _get(self, fixture: StoreFixture, job: NewJob) -> ChainRecord:
        (chain,) = await fixture.run(fixture.store.chains.get([job.id, fixture.new_id()]))
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

    async def test_a_condition_holds_for_every_row_of_a_page(self, fixture: StoreFixture) -> None:
        letters = await self._set_up(fixture)
        for conditions, expected in CONDITIONS:
            query = JobQuery(**conditions)
            jobs = await fixture.run(fixture.store.jobs.page(query, fixture.now))
            assert "".join(sorted(letters[each.id] for each in jobs)) == expected, conditions
            chains = await fixture.run(fixture.store.chains.page(query, fixture.now))
            assert "".join(sorted(letters[each.id] for each in chains)) == expected, conditions

    async def test_a_list_of_ids_is_a_condition_too(self, fixture: StoreFixture) -> None:
        jobs = [await fixture.start() for _ in range(3)]
        query = JobQuery(ids=(jobs[0].id, jobs[2].id, fixture.new_id()))
        found = await fixture.run(fixture.store.jobs.page(query, fixture.now))
        assert [each.id for each in found] == [jobs[2].id, jobs[0].id]
        chains = await fixture.run(fixture.store.chains.page(query, fixture.now))
        assert [each.id for each in chains] == [jobs[2].id, jobs[0].id]
        none = await fixture.run(fixture.store.jobs.page(JobQuery(ids=()), fixture.now))
        assert none == []

    async def test_one_chain_is_a_condition_too(self, fixture: StoreFixture) -> None:
        job = await fixture.start_running()
        successor = fixture.next_job(job)
        await fixture.finish_as(job, "continue", next=successor)
        await fixture.start()
        query = JobQuery(chain=job.chain_id)
        jobs = await fixture.run(fixture.store.jobs.page(query, fixture.now))
        assert [each.id for each in jobs] == [successor.id, job.id]
        (chain,) = await fixture.run(fixture.store.chains.page(query, fixture.now))
        assert chain.id == job.chain_id

    async def _set_up(self, fixture: StoreFixture) -> dict[str, str]:
        """Six jobs that differ in everything one can ask for; return the letter of each."""
        a = await fixture.start("mail.send", key="order-1", at=fixture.now + 3_600 * SECOND)
        b = await fixture.start("mail.send")
        c = await fixture.start("push_send")
        d = await fixture.start("pushxsend")
        (completed,) = await fixture.claim("push_send", worker="worker-1")
        await fixture.finish_as(completed, "complete")
        (failed,) = await fixture.claim("pushxsend", worker="worker-2")
        await fixture.finish_as(failed, "retry")
        (failed,) = await fixture.claim("pushxsend", worker="worker-2")
        finish = fixture.finish_of(
            failed,
            "fail",
            error="ValueError: Boom! 100% sure",
            fingerprint="value-error",
            worker="worker-2",
        )
        await fixture.finish(finish)
        await fixture.claim("mail.send", worker="worker-2", lease_ms=LEASE_MS)
        e = await fixture.start_blocked(a.id, type="mail.wait")
        fixture.pass_time(seconds=10)
        f = await fixture.start("mail.late")
        return {job.id: letter for letter, job in zip("abcdef", (a, b, c, d, e, f), strict=True)}


class DeadLetterConformance(Conformance):
    """Dead letters of one type that failed alike are one group."""

    async def _fail(
        self, fixture: StoreFixture, type: str, fingerprint: str | None, error: str
    ) -> str:
        fixture.pass_time(seconds=1)
        return (await fixture.finish_new("fail", type, fingerprint=fingerprint, error=error)).id

    async def test_groups_are_counted_by_type_and_kind_the_largest_first(
        self, fixture: StoreFixture
    ) -> None:
        await self._fail(fixture, MAIL, "timeout", "Timeout: 1")
        oldest = fixture.now
        push_id = await self._fail(fixture, "push", "timeout", "Timeout: 2")
        pushed = fixture.now
        mail_id = await self._fail(fixture, MAIL, "timeout", "Timeout: 3")
        groups = await fixture.run(fixture.store.dead_letters.groups(10, 100))
        assert groups == [
            DeadGroup(MAIL, "timeout", 2, oldest, fixture.now, mail_id, "Timeout: 3"),
            DeadGroup("push", "timeout", 1, pushed, pushed, push_id, "Timeout: 2"),
        ]

    async def test_groups_of_one_size_come_by_type_then_kind_the_unknown_last(
        self, fixture: StoreFixture
    ) -> None:
        kinds = [("push", "late"), (MAIL, None), (MAIL, "timeout"), (MAIL, "late")]
        for type, fingerprint in kinds:
            await self._fail(fixture, type, fingerprint, "Boom: no")
        groups = await fixture.run(fixture.store.dead_letters.groups(10, 100))
        assert [(each.type, each.fingerprint) for each in groups] == [
            (MAIL, "late"),
            (MAIL, "timeout"),
            (MAIL, None),
            ("push", "late"),
        ]

    async def test_what_did_not_fail_is_in_no_group(self, fixture: StoreFixture) -> None:
        await fixture.finish_new("complete")
        await fixture.finish_new("cancel")
        await fixture.start()
        assert await fixture.run(fixture.store.dead_letters.groups(10, 100)) == []

    async def test_only_the_newest_are_looked_at(self, fixture: StoreFixture) -> None:
        await self._fail(fixture, MAIL, "old", "Old")
        await self._fail(fixture, MAIL, "young", "Young")
        (group,) = await fixture.run(fixture.store.dead_letters.groups(10, 1))
        assert group.fingerprint == "young"


class AuditConformance(Conformance):
    """Changes are kept with their time and read back from the newest."""

    def _change(self, fixture: StoreFixture, **fields: Any) -> AuditRecord:
        change = {"id": fixture.new_id(), "actor": "ana", "role": "operator", "action": "pause"}
        return AuditRecord(**change | {"target": "type mail"} | fields)

    async def _append(self, fixture: StoreFixture, *changes: AuditRecord) -> None:
        await fixture.run(fixture.store.audit.append(changes, fixture.now))

    async def test_a_change_is_read_back_as_it_was_written(self, fixture: StoreFixture) -> None:
        full = self._change(
            fixture, before="{}", after='{"paused": true}', reason="provider down", request_id="r-1"
        )
        await self._append(fixture, full)
        found = await fixture.run(fixture.store.audit.page(10))
        assert found == [msgspec.structs.replace(full, at=fixture.now)]

    async def test_pages_follow_one_another_from_the_newest(self, fixture: StoreFixture) -> None:
        changes = []
        for _ in range(3):
            fixture.pass_time(seconds=1)
            changes += [self._change(fixture), self._change(fixture)]
            await self._append(fixture, *changes[-2:])
        seen: list[str] = []
        before = None
        while page := await fixture.run(fixture.store.audit.page(4, before)):
            seen += [each.id for each in page]
            before = (page[-1].at, page[-1].id)
        assert seen == [each.id for each in reversed(changes)]

    async def test_changes_are_found_by_actor_action_and_target(
        self, fixture: StoreFixture
    ) -> None:
        ana, bob = (
            self._change(fixture),
            self._change(fixture, actor="bob", action="drop", target="job 1"),
        )
        await self._append(fixture, ana, bob)
        audit = fixture.store.audit
        for op in (
            audit.page(10, actor="bob"),
            audit.page(10, action="drop"),
            audit.page(10, target="job 1"),
        ):
            (found,) = await fixture.run(op)
            assert found.id == bob.id
