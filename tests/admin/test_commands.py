"""Commands change what they say, leave their audit in the same transaction, and refuse the wrong caller."""

import asyncio

import pytest
from psycopg import AsyncConnection

from holdfast.admin.serializers import chain_version, plain, version_of
from holdfast.admin.service import Service
from holdfast.app import Holdfast
from holdfast.commands.workers import TypeChange
from holdfast.core.errors import (
    ChainNotFound,
    Changed,
    CycleNotFound,
    InvalidOption,
    JobNotFound,
    Refused,
    StillReferenced,
    SubscriptionNotFound,
    UnknownJobType,
    WorkerNotFound,
    WrongState,
)
from holdfast.core.records import AuditRecord, Ending
from holdfast.settings import read_settings
from holdfast.storage.id_generator import new_id
from holdfast.storage.operation import run_async
from tests.admin.conftest import DEVELOPER, OPERATOR, VIEWER
from tests.cli.scene import Scene
from tests.support.until import until

_WAITING = (
    "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
)


def deeds(scene: Scene) -> list[AuditRecord]:
    return list(reversed(scene.database.read(scene.store.audit.page(100))))


async def test_a_retry_is_audited_with_who_what_why_and_under_which_request(
    service: Service, scene: Scene
) -> None:
    id = scene.failed()
    moved = await service.jobs.retry(OPERATOR, [id])
    assert (moved.moved, moved.left) == ([id], [])
    assert scene.state(id) == "pending"
    (deed,) = deeds(scene)
    assert (deed.actor, deed.role) == ("ana-operator", "operator")
    assert (deed.action, deed.target) == ("job.retry", f"job {id}")
    assert (deed.before, deed.after) == ('{"state":"failed"}', '{"state":"pending"}')
    assert (deed.reason, deed.request_id) == ("because", "request-1")


async def test_a_viewer_changes_nothing_and_leaves_no_audit(service: Service, scene: Scene) -> None:
    id = scene.failed()
    with pytest.raises(Refused):
        await service.jobs.retry(VIEWER, [id])
    assert scene.state(id) == "failed"
    assert deeds(scene) == []


async def test_jobs_in_another_state_are_left_alone_and_named(
    service: Service, scene: Scene
) -> None:
    failed, waiting = scene.failed(), scene.start()
    moved = await service.jobs.retry(OPERATOR, [failed, waiting])
    assert (moved.moved, moved.left) == ([failed], [waiting])
    with pytest.raises(WrongState, match="cannot retry a job that is pending"):
        await service.jobs.retry(OPERATOR, [waiting])
    with pytest.raises(JobNotFound):
        await service.jobs.cancel(OPERATOR, [new_id()])
    with pytest.raises(InvalidOption):
        await service.jobs.cancel(OPERATOR, [])


async def test_a_running_job_is_cancelled_with_its_former_state_in_the_audit(
    service: Service, scene: Scene
) -> None:
    job = scene.running()
    await service.jobs.cancel(OPERATOR, [job.id])
    assert scene.state(job.id) == "cancelled"
    (deed,) = deeds(scene)
    assert deed.before == '{"state":"running"}'


async def test_a_deferred_job_is_made_due(service: Service, scene: Scene) -> None:
    id = scene.start(at=2**52)
    assert scene.claim() == []
    await service.jobs.run_now(OPERATOR, [id])
    assert [each.id for each in scene.claim()] == [id]


async def test_a_write_on_an_old_version_is_refused(service: Service, scene: Scene) -> None:
    id = scene.start()
    version = (await service.jobs.get(VIEWER, id)).version
    (job,) = scene.claim()
    with pytest.raises(Changed):
        await service.jobs.cancel(OPERATOR, [id], [version])
    assert scene.state(id) == "running"
    fresh = (await service.jobs.get(VIEWER, job.id)).version
    await service.jobs.cancel(OPERATOR, [id], [version, fresh])
    assert scene.state(id) == "cancelled"


async def test_a_chain_is_started_cancelled_and_deleted(
    service: Service, scene: Scene, app: Holdfast
) -> None:
    with pytest.raises(Refused):
        await service.chains.start(OPERATOR, "mail.send", {"to": "ana"})
    chain = await service.chains.start(DEVELOPER, "mail.send", {"to": "ana"}, {"key": "k"})
    again = await service.chains.start(DEVELOPER, "mail.send", {"to": "ana"}, {"key": "k"})
    assert again.deduplicated
    assert again.id == chain.id
    id = str(chain.id)
    await service.chains.cancel(OPERATOR, id)
    with pytest.raises(WrongState):
        await service.chains.cancel(OPERATOR, id)
    with pytest.raises(Refused):
        await service.chains.delete(OPERATOR, [id])
    assert await service.chains.delete(DEVELOPER, [id]) == 1
    with pytest.raises(ChainNotFound):
        await service.chains.get(VIEWER, id)
    assert [each.action for each in deeds(scene)] == ["chain.start", "chain.cancel", "chain.delete"]


async def test_a_chain_that_others_wait_for_is_not_deleted(service: Service, scene: Scene) -> None:
    awaited = scene.start()
    scene.start(blockers=(awaited,))
    with pytest.raises(StillReferenced):
        await service.chains.delete(DEVELOPER, [awaited])
    assert scene.state(awaited) == "pending"
    assert deeds(scene) == []


async def test_dead_letters_are_grouped_redriven_by_filter_and_dropped(
    service: Service, scene: Scene
) -> None:
    timeouts = {scene.failed("TimeoutError: slow") for _ in range(3)}
    other = scene.failed("ValueError: boom")
    groups = await service.dead_letters.groups(VIEWER)
    assert [each["count"] for each in groups.items] == [3, 1]
    handled = await service.dead_letters.redrive(OPERATOR, filter=groups.items[0]["filter"], rate=2)
    assert set(handled.ids) == timeouts
    (redrive,) = (await service.dead_letters.groups(VIEWER)).redrives
    assert (redrive.rate, redrive.left) == ("2/s", 3)
    assert scene.claim() == [], "workers re-queue them over time"
    dropped = await service.dead_letters.drop(DEVELOPER, [other])
    assert dropped.ids == [other]
    assert scene.database.read(scene.store.jobs.get([other])) == []
    with pytest.raises(InvalidOption):
        await service.dead_letters.redrive(OPERATOR)
    with pytest.raises(InvalidOption):
        await service.dead_letters.redrive(OPERATOR, [other], rate=0)


async def test_a_type_is_paused_set_and_resumed_with_before_and_after(
    service: Service, scene: Scene
) -> None:
    scene.start("pdf")
    paused = await service.types.pause(OPERATOR, "pdf")
    assert (paused["paused"], paused["paused_by"]) == (True, "ana-operator")
    changed = await service.types.set(OPERATOR, "pdf", TypeChange(lease_ms=120_000))
    assert (changed["lease_ms"], changed["paused"]) == (120_000, True)
    await service.types.resume(OPERATOR, "pdf")
    (facts,) = await service.types.list(VIEWER)
    assert not facts.setting.paused
    with pytest.raises(UnknownJobType):
        await service.types.pause(OPERATOR, "pfd")
    with pytest.raises(InvalidOption):
        await service.types.set(OPERATOR, "pdf", TypeChange())
    with pytest.raises(InvalidOption):
        await service.types.set(OPERATOR, "pdf", TypeChange(lease_ms=5))
    first, *_ = deeds(scene)
    assert '"paused":false' in (first.before or "")
    assert '"paused":true' in (first.after or "")


async def test_everything_is_paused_at_once(service: Service, scene: Scene) -> None:
    await service.types.pause_all(OPERATOR, True)
    identity = scene.database.read(scene.store.schema.identity())
    assert identity is not None
    assert identity.paused
    await service.types.pause_all(OPERATOR, False)
    assert [each.action for each in deeds(scene)] == ["type.pause", "type.resume"]


async def test_a_worker_is_asked_to_drain(service: Service, scene: Scene) -> None:
    scene.worker("mail.send")
    await service.workers.drain(OPERATOR, "w-7")
    (facts,) = await service.workers.list(VIEWER)
    assert facts.standing == "draining"
    with pytest.raises(WorkerNotFound):
        await service.workers.drain(OPERATOR, "w-8")


async def test_a_removed_subscription_is_audited_and_what_is_left_of_it_is_told(
    service: Service, scene: Scene
) -> None:
    scene.subscribe("order.placed", "charge", "mail")
    scene.start("order.placed/mail")
    with pytest.raises(Refused):
        await service.subscriptions.remove(VIEWER, "order.placed", "mail")
    done = await service.subscriptions.remove(OPERATOR, "order.placed", "mail")
    assert (done.type, done.live, done.others) == ("order.placed/mail", 1, ["charge"])
    assert scene.subscribed("order.placed") == ["charge"]
    (deed,) = deeds(scene)
    assert (deed.action, deed.target) == ("subscription.remove", "subscription order.placed/mail")
    assert deed.before == '{"event":"order.placed","handler":"mail"}'
    with pytest.raises(SubscriptionNotFound):
        await service.subscriptions.remove(OPERATOR, "order.placed", "mail")
    assert len(deeds(scene)) == 1


async def test_an_unknown_cycle_is_not_found(service: Service) -> None:
    for command in (service.cycles.pause, service.cycles.resume, service.cycles.run_now):
        with pytest.raises(CycleNotFound):
            await command(OPERATOR, "nightly")


async def test_a_tick_by_hand_says_that_one_is_running(service: Service) -> None:
    with pytest.raises(Refused):
        await service.outbox.run_once(OPERATOR)
    ran, answer = await asyncio.gather(*(service.outbox.run_once(DEVELOPER) for _ in range(2)))
    assert ran["summary"]["totalErrors"] == 0
    assert answer == {"skipped": True, "reason": "tick_already_in_progress"}
    await service.close()


async def test_a_setting_that_another_change_holds_is_not_overwritten_under_its_old_version(
    postgres_url: str,
) -> None:
    app = Holdfast(postgres_url, open_types=True)
    app.migrate()
    service = Service(app, read_settings({}))
    Scene(app.database).start("pdf")
    (facts,) = await service.types.list(VIEWER)
    seen = [version_of(plain(facts.setting))]
    watcher = await AsyncConnection.connect(postgres_url, autocommit=True)
    async with watcher, app.transaction() as tx:
        await run_async(app.database.store.workers.set_type("pdf", concurrency=2), tx)
        change = TypeChange(concurrency=3)
        late = asyncio.create_task(service.types.set(OPERATOR, "pdf", change, seen))

        async def is_waiting() -> bool:
            return await (await watcher.execute(_WAITING)).fetchone() is not None

        await until(is_waiting)
    with pytest.raises(Changed):
        await late
    (facts,) = await service.types.list(VIEWER)
    assert facts.setting.concurrency == 2
    await app.aclose()


@pytest.mark.parametrize("change", ["cancel", "delete"])
async def test_a_chain_that_another_change_holds_is_not_changed_under_its_old_version(
    postgres_url: str, change: str
) -> None:
    app = Holdfast(postgres_url, open_types=True)
    app.migrate()
    service, store = Service(app, read_settings({})), app.database.store
    id = Scene(app.database).start("pdf")
    (seen,) = await app.database.read_async(store.chains.get([id]))
    versions = [chain_version(seen)]
    watcher = await AsyncConnection.connect(postgres_url, autocommit=True)

    async def is_waiting() -> bool:
        return await (await watcher.execute(_WAITING)).fetchone() is not None

    async with watcher, app.transaction() as tx:
        await run_async(store.jobs.end([Ending(id=id, state="failed", error="no paper")]), tx)
        late: asyncio.Task[object] = asyncio.create_task(
            service.chains.cancel(DEVELOPER, id, versions)
            if change == "cancel"
            else service.chains.delete(DEVELOPER, [id], expected=versions)
        )
        await until(is_waiting)
    with pytest.raises(Changed):
        await late
    (left,) = await app.database.read_async(store.chains.get([id]))
    assert left.state == "failed"
    await app.aclose()


async def test_a_live_worker_is_listed_behind_any_number_of_newer_ones_that_stopped(
    service: Service, scene: Scene
) -> None:
    scene.worker("mail.send", id="w-silent", ago_s=600)
    scene.worker("mail.send", id="w-old", ago_s=3)
    for ago_s, id in ((2, "w-new"), (1, "w-newer")):
        scene.worker("mail.send", id=id, ago_s=ago_s)
        scene.database.run(scene.store.workers.stop(id, "{}"))
    found = await service.workers.list(VIEWER, limit=2)
    assert [each.worker.id for each in found] == ["w-old"]
    everyone = await service.workers.list(VIEWER, everyone=True)
    assert [each.worker.id for each in everyone] == ["w-newer", "w-new", "w-old", "w-silent"]
    assert [each.worker.id for each in await service.workers.list(VIEWER)] == ["w-old", "w-silent"]
