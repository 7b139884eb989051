"""Questions are answered with facts, within limits, and without what the caller may not see."""

from base64 import urlsafe_b64encode

import pytest

from holdfast.admin import overview as overview_desk
from holdfast.admin.jobs import Watch
from holdfast.admin.service import Service
from holdfast.core.cycle import NewCycle
from holdfast.core.errors import FilterError, InvalidCursor, InvalidOption, Refused
from holdfast.worker.options import LARGEST_CLAIM
from holdfast_dashboard.page_reads import OverviewPage, PageReads
from tests.admin.conftest import DEVELOPER, VIEWER
from tests.cli.scene import Scene

CANARY = "hf_canarycanarycanary1"


async def test_lists_go_page_by_page_in_order(service: Service, scene: Scene) -> None:
    ids = [scene.start() for _ in range(5)]
    first = await service.jobs.page(VIEWER, "state:pending", 3, None)
    second = await service.jobs.page(VIEWER, "state:pending", 3, first.next)
    assert [each["id"] for each in (*first.items, *second.items)] == ids[::-1]
    assert second.next is None
    with pytest.raises(InvalidCursor):
        await service.jobs.page(VIEWER, "state:failed", 3, first.next)
    with pytest.raises(FilterError):
        await service.jobs.page(VIEWER, "stat:failed", 3, None)


async def test_a_page_says_when_it_stopped_looking_and_goes_on_from_there(
    service: Service, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    rare = scene.start("rare")
    for _ in range(6):
        scene.start("common")
    monkeypatch.setattr("holdfast.client.pagination.LOOK", 4)
    first = await service.jobs.page(VIEWER, "type:rare", 3, None)
    assert (first.items, first.cut) == ((), True)
    second = await service.jobs.page(VIEWER, "type:rare", 3, first.next)
    assert ([each["id"] for each in second.items], second.next) == ([rare], None)


async def test_a_type_and_state_that_no_job_has_are_not_searched_for(
    service: Service, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.ended("complete", "rare")
    for _ in range(6):
        scene.ended("complete", "common")
        scene.failed(type="common")
    monkeypatch.setattr("holdfast.client.pagination.LOOK", 4)
    for filter, cut in (
        ("type:rare state:completed", True),
        ("type:rare state:failed", False),
        ("type:rare state:cancelled,failed", False),
        ("type:rare state:completed key:x", False),
        ("state:cancelled", False),
        ("type:rar* state:failed", True),
    ):
        page = await service.jobs.page(VIEWER, filter, 3, None)
        assert (page.items, page.cut, page.next is not None) == ((), cut, cut), filter


async def test_payloads_are_withheld_below_developer_and_redacted_for_developers(
    service: Service, scene: Scene
) -> None:
    id = scene.start(input=f'{{"to":"ana","password":"{CANARY}"}}')
    hidden = await service.jobs.get(VIEWER, id)
    assert hidden.job["input"] is None
    assert hidden.job["payloads_withheld"]
    shown = await service.jobs.get(DEVELOPER, id)
    assert shown.job["input"]["to"] == "ana"
    assert CANARY not in str(shown)
    raw = await service.jobs.get(DEVELOPER, id, raw=True)
    assert raw.job["input"]["password"] == CANARY
    with pytest.raises(Refused):
        await service.jobs.get(VIEWER, id, raw=True)
    chain = await service.chains.get(VIEWER, id)
    assert chain.chain["input"] is None


async def test_a_job_says_why_it_does_not_run(service: Service, scene: Scene) -> None:
    detail = await service.jobs.get(VIEWER, scene.start("resize"))
    assert detail.why == "No live worker handles resize"


async def test_a_chain_is_read_with_its_tree_and_those_who_wait(
    service: Service, scene: Scene
) -> None:
    awaited = scene.start()
    dependent = scene.start(blockers=(awaited,))
    detail = await service.chains.get(VIEWER, dependent)
    assert detail.tree["jobs"][0]["waits_for"][0]["chain"]["id"] == awaited
    below = await service.chains.get(VIEWER, awaited)
    assert below.waiting == [{"job_id": dependent, "open": True}]


async def test_the_overview_sums_up_and_draws_the_last_hour(service: Service, scene: Scene) -> None:
    now = scene.database.read(scene.store.schema.clock())
    scene.ended("complete", started_at=now + 2_000_000)
    scene.failed()
    overview = await service.overview.get(VIEWER, "1h")
    assert sum(each.completed for each in overview.series) == 1
    assert sum(each.failed for each in overview.series) == 1
    assert overview.p95_wait_us is not None
    assert 0 < overview.p95_wait_us <= 2_000_000
    assert overview.sentence


async def board(service: Service) -> OverviewPage:
    return await service.of(PageReads).board(VIEWER, service.overview)


async def test_the_first_page_reads_waiting_times_seldom_and_all_else_anew(
    service: Service, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = scene.database.read(scene.store.schema.clock())
    before = (await board(service)).overview
    assert before.p95_wait_us is None
    scene.ended("complete", started_at=now + 2_000_000)
    soon = (await board(service)).overview
    assert soon.health.totals.completed == 1
    assert soon.p95_wait_us is None
    monkeypatch.setattr(overview_desk, "WAITS_LAST_US", 0)
    later = (await board(service)).overview
    assert later.p95_wait_us is not None


async def test_a_cycle_is_told_in_plain_words_with_its_next_runs(
    service: Service, scene: Scene
) -> None:
    cycle = NewCycle("nightly", "17 3 * * *", "America/Santiago", True, "last")
    scene.database.run(scene.store.cycles.register([cycle]))
    (facts,) = await service.cycles.list(VIEWER)
    assert len(facts.next) == 5
    assert facts.next == sorted(facts.next)
    assert facts.as_json()["name"] == "nightly"
    await service.cycles.pause(DEVELOPER, "nightly")
    (paused,) = await service.cycles.list(VIEWER)
    assert paused.next == []
    assert paused.cycle.paused_by == "ana-developer"
    await service.cycles.run_now(DEVELOPER, "nightly")
    await service.cycles.resume(DEVELOPER, "nightly")


async def test_the_audit_log_goes_page_by_page(service: Service, scene: Scene) -> None:
    dead = [scene.failed() for _ in range(3)]
    for id in dead:
        await service.jobs.retry(DEVELOPER, [id])
    first = await service.audit.page(VIEWER, 2)
    second = await service.audit.page(VIEWER, 2, first.next)
    assert len({each["id"] for each in (*first.items, *second.items)}) == 3
    assert second.next is None
    assert len((await service.audit.page(VIEWER, 10, action="job.cancel")).items) == 0
    beyond = [f'[{at}, "{dead[0]}"]'.encode() for at in (10**30, 2**63 - 1, -(2**62))]
    forged = [urlsafe_b64encode(each).decode() for each in beyond]
    for cursor in ("", "%%%", "bm90LW91cnM=", "W10=", *forged):
        with pytest.raises(InvalidCursor):
            await service.audit.page(VIEWER, 2, cursor)
    with pytest.raises(InvalidOption):
        await service.audit.page(VIEWER, 0)


async def test_a_queue_longer_than_is_counted_is_told_as_a_lower_bound(
    service: Service, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.commands.health.COUNTED", 3)
    for _ in range(5):
        scene.start()
    queue = (await service.outbox.stats(DEVELOPER))["queue"]
    assert (queue["due_now"], queue["due_now_is_a_lower_bound"]) == (3, True)


async def test_those_who_follow_jobs_look_no_further_than_they_say(
    service: Service, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.admin.jobs.TAIL_LOOK", 5)
    scene.start("rare")
    for _ in range(5):
        scene.start()
    looks = []
    for filter in ("", "type:rare", "type:mail.send"):
        found = await service.jobs.changes(VIEWER, filter, Watch(), 500)
        looks.append([each["type"] for each in found])
    assert looks[1] == []
    assert looks[0] == looks[2] == ["mail.send"] * 5


async def test_outbox_statistics_have_the_promised_fields(service: Service, scene: Scene) -> None:
    scene.worker("mail.send")
    scene.ended("complete")
    scene.failed()
    scene.start()
    with pytest.raises(Refused):
        await service.outbox.stats(VIEWER)
    stats = await service.outbox.stats(DEVELOPER)
    assert set(stats) == {"generated_at", "queue", "runtime", "config"}
    assert stats["queue"] == {
        "total": 3,
        "due_now": 1,
        "due_now_is_a_lower_bound": False,
        "oldest_pending_age_seconds": stats["queue"]["oldest_pending_age_seconds"],
        "stuck_processing": 0,
        "pending": 1,
        "processing": 0,
        "sent": 1,
        "failed": 1,
    }
    assert stats["runtime"]["is_running"] is True
    assert stats["runtime"]["processed_total"] == 3
    assert stats["config"]["batch_size"] == LARGEST_CLAIM


async def test_the_system_shows_settings_without_secrets(service: Service) -> None:
    system = await service.overview.system(VIEWER)
    assert system.migrations
    assert {each["name"] for each in system.configuration} > {"HOLDFAST_URL", "OUTBOX_BATCH_SIZE"}


async def test_the_system_tells_how_much_room_it_takes(service: Service, scene: Scene) -> None:
    scene.start()
    system = await service.overview.system(VIEWER)
    assert system.sizes.bytes > 0
    if system.dialect == "sqlite":
        assert system.sizes.log_bytes
        assert system.sizes.free_bytes is not None
        assert system.sizes.tables == []
    else:
        assert {each.name for each in system.sizes.tables} > {"job", "queue", "lease", "outcome"}
        assert all(each.bytes > 0 and each.dead >= 0 for each in system.sizes.tables)


async def test_readiness_needs_somebody_who_reaps(service: Service, scene: Scene) -> None:
    assert "no reaper has run for three intervals" in (await service.overview.unready() or "")
    scene.worker("mail.send")
    assert await service.overview.unready() is None


async def test_types_are_told_with_their_pace(service: Service, scene: Scene) -> None:
    scene.ended("complete")
    scene.failed()
    scene.running("order.charge")
    paces = await service.of(PageReads).paces(VIEWER)
    assert (paces["mail.send"].ended, paces["mail.send"].running) == (2, 0)
    assert (paces["order.charge"].ended, paces["order.charge"].running) == (0, 1)
