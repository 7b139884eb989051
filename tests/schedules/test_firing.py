"""How workers start due schedules: all or nothing, only what they can start, soon after it was set."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import Holdfast, Job, Limit, Seal
from holdfast.core.errors import HoldfastError
from holdfast.core.instants import to_instant
from holdfast.settings import load_settings
from holdfast.storage.operation import Statement, at, run
from holdfast_schedules import add_schedules
from holdfast_schedules.firing import fire_due
from holdfast_schedules.schedule_store import SCHEDULES, MovedSchedule
from holdfast_testing.kit import Kit
from tests.schedules.scene import ScheduleScene
from tests.support.until import until


class Killed(Exception):
    """The process died."""


class DyingExecutor:
    """Runs statements until one of them is the last."""

    def __init__(self, tx: Any, left: int) -> None:
        self._tx, self._left = tx, left

    def execute(self, statement: Statement) -> Any:
        if self._left == 0:
            raise Killed(statement.name)
        self._left -= 1
        return self._tx.execute(statement)


def test_a_process_that_dies_after_any_statement_leaves_everything_as_it_was(
    scene: ScheduleScene,
) -> None:
    for number in range(3):
        scene.set(f"report:{number}", customer=number, every="1h", overlap="skip")
    scene.clock.advance("1h")
    before = [each.next_at for each in scene.schedules.list()]
    store, deaths = scene.app.database.store, []

    def fire(last: int) -> None:
        op = fire_due(store, scene.app.targets, None, "report.send", 10)
        with scene.app.transaction() as tx:
            run(at(op, scene.clock.now()), DyingExecutor(tx, last))

    for last in range(100):
        try:
            fire(last)
        except Killed as death:
            deaths.append(str(death))
            assert [each.next_at for each in scene.schedules.list()] == before
            assert scene.kit.started() == []
            assert scene.schedules.history("report:0") == []
        else:
            break
    assert {"schedule_take", "schedule_slot_put", "schedule_move"} <= set(deaths)
    assert len(scene.kit.started()) == 3


def test_a_slot_that_was_decided_starts_no_second_job_though_the_clock_is_set_back(
    scene: ScheduleScene,
) -> None:
    made = scene.set("report:7", every="1h")
    scene.at(3, 9)
    record = scene.app.database.run(SCHEDULES.get("report:7"))
    assert record is not None
    back = MovedSchedule("report:7", to_instant(made.next_at), record.now, None, None)
    scene.app.database.run(SCHEDULES.move([back]))
    scene.at(3, 9, 1)
    assert scene.slots() == ["03 09:00"]
    assert scene.schedules.get("report:7").next_at == datetime(2031, 3, 3, 10, tzinfo=UTC)
    # What overlap="skip" looks at is a job that there is.
    assert [scene.schedules.get("report:7").last_job] == [each.id for each in scene.kit.started()]


def test_a_worker_leaves_schedules_of_types_that_it_does_not_know_to_others(
    scene: ScheduleScene,
) -> None:
    other = Holdfast(scene.url)
    schedules = add_schedules(other)

    @other.job("poll.run")
    def poll(job: Job[None]) -> None: ...

    kit = Kit(other, scene.url, clock=scene.clock)
    with other.transaction() as tx:
        schedules.set(tx, "poll", poll, every="1h")
    scene.set("report:7", every="1h")
    scene.at(3, 9)
    assert [each.type for each in kit.started()] == ["report.send"]
    assert scene.told("schedule_lag")[-1] == {"type": "report.send", "lag_ms": 0}
    scene.clock.advance("10m")
    scene.kit.run_until_idle()
    assert {"type": "poll.run", "lag_ms": 600_000} in scene.told("schedule_lag")
    kit.run_until_idle()
    assert sorted(each.type for each in kit.started()) == ["poll.run", "report.send"]
    kit.close()
    other.close()


def test_an_input_that_the_type_refuses_now_is_recorded_and_the_others_start(
    scene: ScheduleScene,
) -> None:
    old = Holdfast(scene.url, seal=Seal({"k1": Seal.new_key()}))
    schedules = add_schedules(old)

    @old.job("report.send", sealed=True)
    def send(job: Job[dict[str, int]]) -> None: ...

    kit = Kit(old, scene.url, clock=scene.clock)
    with old.transaction() as tx:
        schedules.set(tx, "report:1", send, {"customer": 1}, every="1h")
    assert "customer" not in repr(old.database.run(SCHEDULES.get("report:1")))
    assert schedules.get("report:1").input == {"customer": 1}
    kit.close()
    old.close()
    scene.set("report:7", every="1h")
    scene.at(3, 9)
    assert [customer for customer, _ in scene.ran] == [7]
    (slot,) = scene.schedules.history("report:1")
    assert slot.state == "refused"
    assert "HF" in str(slot.error) or "key" in str(slot.error)
    assert scene.schedules.get("report:1").error == slot.error
    assert [each["schedule"] for each in scene.told("schedule_refused")] == ["report:1"]
    # Set again with an input that fits, it goes on.
    scene.set("report:1", customer=1, every="1h")
    scene.at(3, 10)
    assert sorted(customer for customer, _ in scene.ran) == [1, 7, 7]
    assert scene.schedules.get("report:1").error is None


def test_an_input_on_which_the_code_of_a_limit_fails_is_recorded_and_the_others_start(
    url: str,
) -> None:
    before, app, seen = Holdfast(url), Holdfast(url), list[str]()
    schedules = add_schedules(before)
    add_schedules(app)

    @before.job("letter.write")
    def write_before(job: Job[dict[str, str]]) -> None: ...

    @app.job("letter.write", limits=[Limit(1, by=lambda letter: letter["tenant"])])
    def write(job: Job[dict[str, str]]) -> None:
        seen.append(job.input["tenant"])

    kit = Kit(app, url)
    with before.transaction() as tx:
        schedules.set(tx, "old", write_before, {}, every="1h")
        schedules.set(tx, "new", write_before, {"tenant": "acme"}, every="1h")
    kit.advance("1h")
    kit.run_until_idle()
    assert seen == ["acme"]
    (slot,) = schedules.history("old")
    assert slot.state == "refused"
    assert "KeyError: 'tenant'" in str(slot.error)
    kit.close()
    before.close()
    app.close()


def test_sealed_inputs_are_sealed_again_for_each_job(url: str) -> None:
    app = Holdfast(url, seal=Seal({"k1": Seal.new_key()}))
    schedules, seen = add_schedules(app), []

    @app.job("letter.write", sealed=True)
    def write(job: Job[str]) -> None:
        seen.append(job.input)

    kit = Kit(app, url)
    with app.transaction() as tx:
        first = schedules.set(tx, "letter", write, "Dear Ana", every="1h")
        assert schedules.set(tx, "letter", write, "Dear Ana", every="1h") == first
    kit.advance("1h")
    kit.run_until_idle()
    assert seen == ["Dear Ana"]
    kit.close()
    app.close()


def test_nothing_starts_while_everything_is_paused(scene: ScheduleScene) -> None:
    scene.set("report:7", every="1h")
    scene.app.database.run(scene.app.database.store.schema.pause(True, "ana"))
    scene.clock.advance("1h")
    assert scene.app.database.run(at(SCHEDULES.heads(), scene.clock.now())) == []
    scene.app.database.run(scene.app.database.store.schema.pause(False, None))
    scene.kit.run_until_idle()
    assert len(scene.ran) == 1


def test_old_slots_are_removed_and_newer_ones_are_kept(
    scene: ScheduleScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SCHEDULES_KEEP_DAYS", "1")
    scene.set("report:7", cron="0 9 * * *")
    for day in (3, 4, 5):
        scene.at(day, 9)
    scene.at(5, 10)
    assert [each.slot.day for each in scene.schedules.history("report:7")] == [5]
    assert sum(each["slots"] for each in scene.told("schedules_trimmed")) == 2


def test_events_say_what_was_started_and_how_late(scene: ScheduleScene) -> None:
    scene.set("report:7", every="1h")
    scene.at(3, 9, 0, 30)
    (fired,) = scene.told("schedule_fired")
    assert fired == {
        "type": "report.send",
        "started": 1,
        "skipped": 0,
        "missed": 0,
        "late_ms": 30_000,
    }


async def test_a_worker_starts_what_was_just_set_without_waiting_for_its_next_look(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SCHEDULES_POLL_MS", "60000")
    app = Holdfast(url)
    schedules, ran = add_schedules(app), []

    @app.job("poll.run")
    async def poll(job: Job[None]) -> None:
        ran.append(job.key)

    app.migrate()
    async with app.worker(load_settings({}), enabled=True):
        await until(lambda: app.workers.list())
        async with app.transaction() as tx:
            made = await schedules.set(tx, "poll", poll, every="1s")
        await until(lambda: len(ran) >= 2)
        async with app.transaction() as tx:
            await schedules.delete(tx, "poll")
        assert await schedules.aio.list() == []
    assert len(set(ran)) == len(ran)
    assert ran[0] == f"schedule:poll@{made.next_at:%Y-%m-%dT%H:%M:%S}Z"
    await app.aclose()


async def test_a_tick_runs_the_jobs_of_the_schedules_that_it_finds_due(
    scene: ScheduleScene,
) -> None:
    made = scene.set("report:7", every="1h")
    now = time.time_ns() // 1000
    due = MovedSchedule("report:7", now - 1_000_000, to_instant(made.next_at), None, None)
    await scene.app.database.run_async(SCHEDULES.move([due]))
    tick = scene.app.assembly(load_settings({})).tick()
    summary = await tick.run()
    await tick.close()
    await scene.app.aclose()
    assert (summary.total_errors, len(scene.ran)) == (0, 1)


async def test_async_transactions_do_all_that_sync_ones_do(scene: ScheduleScene) -> None:
    app, schedules = scene.app, scene.schedules
    async with app.transaction() as tx:
        made = await schedules.set(tx, "report:7", "report.send", {"customer": 7}, every="1h")
        await schedules.pause(tx, "report:7", by="ana")
    assert (await schedules.aio.get("report:7")).paused
    async with app.transaction() as tx:
        await schedules.resume(tx, "report:7")
        chain = await schedules.run_now(tx, "report:7")
    assert (await schedules.aio.get("report:7")).next_at == made.next_at
    assert [each.job_id for each in await schedules.aio.history("report:7")] == [chain.id]
    async with app.transaction() as tx:
        await schedules.delete(tx, "report:7")
    with pytest.raises(HoldfastError):
        await schedules.aio.get("report:7")
    await app.aclose()
