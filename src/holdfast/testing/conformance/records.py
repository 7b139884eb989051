"""What operators look back on: dead letters by their kind, and who did what."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.records import AuditRecord, DeadGroup
from holdfast.testing.conformance.stage import MAIL, Conformance, Stage


class DeadLetterConformance(Conformance):
    """Dead letters of one type that failed alike are one group."""

    async def _fail(self, stage: Stage, type: str, fingerprint: str | None, error: str) -> str:
        stage.pass_time(seconds=1)
        job = await stage.start_running(type)
        assert await stage.finish_as(job, "fail", fingerprint=fingerprint, error=error)
        return job.id

    async def test_groups_are_counted_by_type_and_kind_the_largest_first(
        self, stage: Stage
    ) -> None:
        await self._fail(stage, MAIL, "timeout", "Timeout: 1")
        oldest = stage.now
        push_id = await self._fail(stage, "push", "timeout", "Timeout: 2")
        pushed = stage.now
        mail_id = await self._fail(stage, MAIL, "timeout", "Timeout: 3")
        groups = await stage.run(stage.store.dead_letters.groups(10, 100))
        assert groups == [
            DeadGroup(MAIL, "timeout", 2, oldest, stage.now, mail_id, "Timeout: 3"),
            DeadGroup("push", "timeout", 1, pushed, pushed, push_id, "Timeout: 2"),
        ]

    async def test_groups_of_one_size_come_by_type_then_kind_the_unknown_last(
        self, stage: Stage
    ) -> None:
        kinds = [("push", "late"), (MAIL, None), (MAIL, "timeout"), (MAIL, "late")]
        for type, fingerprint in kinds:
            await self._fail(stage, type, fingerprint, "Boom: no")
        groups = await stage.run(stage.store.dead_letters.groups(10, 100))
        assert [(each.type, each.fingerprint) for each in groups] == [
            (MAIL, "late"),
            (MAIL, "timeout"),
            (MAIL, None),
            ("push", "late"),
        ]

    async def test_what_did_not_fail_is_in_no_group(self, stage: Stage) -> None:
        completed = await stage.start_running()
        await stage.finish_as(completed, "complete")
        cancelled = await stage.start_running()
        await stage.finish_as(cancelled, "cancel")
        await stage.start()
        assert await stage.run(stage.store.dead_letters.groups(10, 100)) == []

    async def test_only_the_youngest_are_looked_at(self, stage: Stage) -> None:
        await self._fail(stage, MAIL, "old", "Old")
        await self._fail(stage, MAIL, "young", "Young")
        (group,) = await stage.run(stage.store.dead_letters.groups(10, 1))
        assert group.fingerprint == "young"


class AuditConformance(Conformance):
    """Changes are kept with their time and read back from the newest."""

    def _change(self, stage: Stage, **fields: Any) -> AuditRecord:
        change = {"id": stage.new_id(), "actor": "ana", "role": "operator", "action": "pause"}
        return AuditRecord(**change | {"target": "type mail"} | fields)

    async def _append(self, stage: Stage, *changes: AuditRecord) -> None:
        await stage.run(stage.store.audit.append(changes, stage.now))

    async def test_a_change_is_read_back_as_it_was_written(self, stage: Stage) -> None:
        full = self._change(
            stage, before="{}", after='{"paused": true}', reason="provider down", request_id="r-1"
        )
        await self._append(stage, full)
        found = await stage.run(stage.store.audit.page(10))
        assert found == [msgspec.structs.replace(full, at=stage.now)]

    async def test_pages_follow_one_another_from_the_newest(self, stage: Stage) -> None:
        changes = []
        for _ in range(3):
            stage.pass_time(seconds=1)
            changes += [self._change(stage), self._change(stage)]
            await self._append(stage, *changes[-2:])
        seen: list[str] = []
        before = None
        while page := await stage.run(stage.store.audit.page(4, before)):
            seen += [each.id for each in page]
            before = (page[-1].at, page[-1].id)
        assert seen == [each.id for each in reversed(changes)]

    async def test_changes_are_found_by_actor_action_and_target(self, stage: Stage) -> None:
        ana, bob = (
            self._change(stage),
            self._change(stage, actor="bob", action="drop", target="job 1"),
        )
        await self._append(stage, ana, bob)
        audit = stage.store.audit
        for op in (
            audit.page(10, actor="bob"),
            audit.page(10, action="drop"),
            audit.page(10, target="job 1"),
        ):
            (found,) = await stage.run(op)
            assert found.id == bob.id
