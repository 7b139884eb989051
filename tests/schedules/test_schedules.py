"""Schedules that are set at run time: what they start, when, and what happens to due times that are missed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.storage.operation import at
from holdfast_schedules.errors import ScheduleNotFound
from holdfast_schedules.firing import fire_due
from tests.schedules.scene import Report, ScheduleScene


def test_each_due_time_starts_one_job_that_knows_its_schedule_and_slot(
    scene: ScheduleScene,
) -> None:
    made = scene.set("report:7", cron="0 9 * * *")
    assert made.next_at == datetime(2031, 3, 3, 9, tzinfo=UTC)
    scene.kit.run_until_idle()
    assert scene.ran == []
    scene.at(3, 9)
    scene.at(3, 9, 30)
    scene.at(4, 9, 0, 1)
    assert scene.slots() == ["03 09:00", "04 09:00"]
    keys = [each.key for each in scene.kit.started("report.send")]
    assert keys == [
        "schedule:report:7@2031-03-03T09:00:00Z",
        "schedule:report:7@2031-03-04T09:00:00Z",
    ]
    found = scene.schedules.get("report:7")
    assert found.last_slot == datetime(2031, 3, 4, 9, tzinfo=UTC)
    assert found.next_at == datetime(2031, 3, 5, 9, tzinfo=UTC)
    assert found.input == {"customer": 7}
    history = scene.schedules.history("report:7")
    assert [(each.state, each.job_state) for each in history] == [("started", "completed")] * 2
    assert history[0].job_id == found.last_job


def test_setting_it_again_writes_nothing_and_moves_nothing(scene: ScheduleScene) -> None:
    first = scene.set("report:7", every="7m", jitter="10s", priority=3)
    scene.clock.advance("1s")
    again = scene.set("report:7", every="420s", jitter="10s", priority=3)
    assert again == first
    # Another input is written, and the next due time stays.
    other = scene.set("report:7", customer=8, every="7m", jitter="10s", priority=3)
    assert other.next_at == first.next_at
    assert other.changed_at > first.changed_at
    # Other times begin anew.
    assert scene.set("report:7", customer=8, every="1h").next_at != first.next_at


def test_a_rolled_back_transaction_sets_nothing(scene: ScheduleScene) -> None:
    def set_and_fail() -> None:
        with scene.app.transaction() as tx:
            scene.schedules.set(tx, "report:7", scene.send, Report(7), every="1m")
            assert scene.schedules.get("report:7", tx=tx).type == "report.send"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        set_and_fail()
    assert scene.schedules.list() == []


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("last", ["06 09:00"]),
        ("none", []),
        ("all(2)", ["05 09:00", "06 09:00"]),
        ("all(9)", ["03 09:00", "04 09:00", "05 09:00", "06 09:00"]),
    ],
)
def test_missed_due_times_are_caught_up_by_policy(
    scene: ScheduleScene, missed: str, expected: list[str]
) -> None:
    scene.set("report:7", cron="0 9 * * *", missed=missed)
    scene.at(6, 12)
    assert sorted(scene.slots()) == expected
    assert scene.schedules.get("report:7").next_at == datetime(2031, 3, 7, 9, tzinfo=UTC)
    states = [each.state for each in scene.schedules.history("report:7")]
    assert states == (["started"] * len(expected) or ["missed"])


def test_with_missed_none_a_due_time_of_minutes_ago_is_still_started(scene: ScheduleScene) -> None:
    scene.set("report:7", cron="0 9 * * *", missed="none")
    scene.at(3, 9, 4)
    assert scene.slots() == ["03 09:00"]


def test_local_times_follow_their_zone_over_a_clock_change(scene: ScheduleScene) -> None:
    scene.set("report:7", cron="30 2 * * *", timezone="Europe/Berlin")
    for day in (29, 30, 31):
        scene.at(day, 12)
    # On the 30th the clocks go from 2:00 to 3:00, and 2:30 is left out for the first instant after it.
    assert scene.slots() == ["29 01:30", "30 01:00", "31 00:30"]


def test_a_paused_schedule_starts_nothing_and_leaves_out_what_it_missed(
    scene: ScheduleScene,
) -> None:
    scene.set("report:7", cron="0 9 * * *", missed="all(9)")
    with scene.app.transaction() as tx:
        scene.schedules.pause(tx, "report:7", by="ana")
    scene.at(5, 12)
    assert scene.ran == []
    found = scene.schedules.get("report:7")
    assert (found.paused, found.paused_by) == (True, "ana")
    # Setting it again keeps it paused.
    assert scene.set("report:7", cron="0 10 * * *", missed="all(9)").paused
    with scene.app.transaction() as tx:
        scene.schedules.resume(tx, "report:7")
    scene.at(5, 13)
    assert scene.ran == []
    scene.at(6, 10)
    assert scene.slots() == ["06 10:00"]


def test_a_deleted_schedule_is_gone_with_its_history_and_its_jobs_stay(
    scene: ScheduleScene,
) -> None:
    scene.set("report:7", cron="0 9 * * *")
    scene.at(3, 9)
    with scene.app.transaction() as tx:
        scene.schedules.delete(tx, "report:7")
    with pytest.raises(ScheduleNotFound):
        scene.schedules.history("report:7")
    scene.set("report:7", cron="0 9 * * *")
    assert scene.schedules.history("report:7") == []
    assert len(scene.kit.started()) == 1


def test_run_now_starts_a_job_beside_the_due_times(scene: ScheduleScene) -> None:
    scene.set("report:7", cron="0 9 * * *")
    with scene.app.transaction() as tx:
        scene.schedules.pause(tx, "report:7")
        chain = scene.schedules.run_now(tx, "report:7")
    scene.kit.run_until_idle()
    assert [customer for customer, _ in scene.ran] == [7]
    (slot,) = scene.schedules.history("report:7")
    assert (slot.requested, slot.state, slot.job_id) == (True, "started", chain.id)
    assert scene.schedules.get("report:7").next_at == datetime(2031, 3, 3, 9, tzinfo=UTC)


def test_overlap_skip_starts_nothing_while_the_last_job_has_not_ended(scene: ScheduleScene) -> None:
    scene.set("report:7", every="1h", overlap="skip", missed="all(3)")
    with scene.app.transaction() as tx:
        waiting = scene.schedules.run_now(tx, "report:7")
        scene.app.jobs.cancel(tx, waiting.id)
        running = scene.schedules.run_now(tx, "report:7")
    database = scene.app.database

    def fire() -> list[str]:
        op = fire_due(database.store, scene.app.targets, None, "report.send", 10)
        database.run(at(op, scene.clock.now()))
        return [each.state for each in scene.schedules.history("report:7") if not each.requested]

    scene.clock.advance("1h")
    assert fire() == ["skipped"]
    with scene.app.transaction() as tx:
        scene.app.jobs.cancel(tx, running.id)
    # Of several that were missed, the first one starts, and the others would overlap with it.
    scene.clock.advance("2h")
    assert fire() == ["skipped", "started", "skipped"]


def test_jitter_spreads_the_jobs_of_one_due_time(scene: ScheduleScene) -> None:
    for number in range(20):
        scene.set(f"report:{number}", customer=number, cron="0 9 * * *", jitter="10m")
    scene.at(3, 9)
    assert len(scene.ran) < 10
    scene.at(3, 9, 10)
    assert sorted(customer for customer, _ in scene.ran) == list(range(20))
    assert set(scene.slots()) == {"03 09:00"}


def test_jobs_have_the_options_of_their_schedule(scene: ScheduleScene) -> None:
    scene.set("report:7", cron="0 9 * * *", priority=1, max_attempts=2)
    scene.at(3, 9)
    (job,) = scene.kit.started()
    assert (job.priority, job.max_attempts) == (1, 2)


def test_lists_are_paged_by_name_and_filtered(scene: ScheduleScene) -> None:
    for name in ("b:1", "a:1", "a:2", "ä 3"):
        scene.set(name, every="1h")
    with scene.app.transaction() as tx:
        scene.schedules.pause(tx, "a:2")
    names = [each.name for each in scene.schedules.list()]
    assert names == ["a:1", "a:2", "b:1", "ä 3"]
    assert [each.name for each in scene.schedules.list("a:")] == ["a:1", "a:2"]
    assert [each.name for each in scene.schedules.list(limit=2, after="a:1")] == ["a:2", "b:1"]
    assert [each.name for each in scene.schedules.list(paused=True)] == ["a:2"]
    assert scene.schedules.list(type="other") == []


REFUSED: tuple[tuple[dict[str, object], str], ...] = (
    ({"name": "x" * 201}, "HF221"),
    ({"name": ""}, "HF221"),
    ({"name": "a\nb"}, "HF221"),
    ({"name": " a"}, "HF221"),
    ({"target": "report.sned"}, "HF020"),
    ({"cron": "0 9 * * *"}, "HF081"),
    ({"every": None}, "HF081"),
    ({"every": "0.5s"}, "HF081"),
    ({"every": None, "cron": "61 * * * *"}, "HF081"),
    ({"every": None, "cron": "0 9 * * *", "timezone": "Mars/Olympus"}, "HF081"),
    ({"timezone": "Europe/Berlin"}, "HF081"),
    ({"missed": "some"}, "HF081"),
    ({"overlap": "wait"}, "HF073"),
    ({"jitter": "2h"}, "HF073"),
    ({"priority": 10}, "HF073"),
    ({"key": "a"}, "HF073"),
    ({"input": {"customer": "seven"}}, "HF022"),
)


def test_what_cannot_work_is_refused_with_a_code_and_nothing_is_written(
    scene: ScheduleScene,
) -> None:
    fine = {"name": "report:7", "target": "report.send", "input": Report(7), "every": "1h"}
    for change, code in REFUSED:
        asked: Any = fine | change
        with pytest.raises(HoldfastError) as raised, scene.app.transaction() as tx:
            scene.schedules.set(tx, **asked)
        assert (raised.value.code, bool(raised.value.fix)) == (code, True), change
        assert "tz=" not in raised.value.help
    assert scene.schedules.list() == []


def test_an_unknown_name_is_refused_with_the_nearest(scene: ScheduleScene) -> None:
    scene.set("report:7", every="1h")
    for act in (scene.schedules.pause, scene.schedules.delete, scene.schedules.run_now):
        with (
            pytest.raises(ScheduleNotFound, match="report:8") as raised,
            scene.app.transaction() as tx,
        ):
            act(tx, "report:8")
        assert "report:7" in (raised.value.help or "")
