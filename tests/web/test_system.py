"""The outbox's endpoints, probes, metrics, streams, headers and the description of it all."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast.admin.access import Role, new_secret
from holdfast.app import Holdfast
from holdfast.commands import health
from holdfast.core.cycle import NewRun, new_cycles
from holdfast.core.errors import RateLimited
from holdfast.core.events import event
from holdfast.core.worker_presence import WorkerSign
from holdfast.notify.base import Hint, Notifier
from holdfast.notify.local import LocalNotifier
from holdfast.observe.metrics import METRICS
from holdfast.settings import read_settings
from holdfast.storage.id_generator import new_id
from holdfast.storage.postgres.pool import WAIT_S
from holdfast.web import probes
from holdfast.web.api.streams import Broadcaster
from holdfast.web.app import create
from holdfast.web.middleware import RateLimit
from holdfast.web.openapi import ROUTES
from tests.cli.scene import Scene
from tests.support.serving import serve
from tests.support.until import PATIENCE_S, until
from tests.web.conftest import HOST, Api

RUN_ONCE = "/api/settings/events/outbox/run-once"


async def test_run_once_drains_what_is_due_and_returns_its_summary(api: Api, scene: Scene) -> None:
    id = scene.start("echo", input='{"n":1}')
    answer = await api.call(Role.DEVELOPER, "POST", RUN_ONCE)
    summary = answer.json()["summary"]
    assert set(summary) == {
        *("runId", "startedAt", "finishedAt", "durationMs"),
        *("runnerResults", "totalProcessed", "totalErrors"),
    }
    assert summary["runnerResults"]["outbox"]["processed"] == 1
    assert next(iter(summary["runnerResults"])) == "reaper"
    assert scene.state(id) == "completed"
    assert [action for action, _, _ in scene.deeds()] == ["outbox.run_once"]


async def test_run_once_while_a_tick_runs_says_that_it_was_skipped(api: Api, app: Holdfast) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    @app.job("slow")
    async def slow(job: object) -> None:
        inside.set()
        await go_on.wait()

    Scene(app.database).start("slow")
    first = asyncio.create_task(api.call(Role.DEVELOPER, "POST", RUN_ONCE))
    async with asyncio.timeout(PATIENCE_S):
        await inside.wait()
    second = await api.call(Role.DEVELOPER, "POST", RUN_ONCE)
    assert second.json() == {"skipped": True, "reason": "tick_already_in_progress"}
    go_on.set()
    assert (await first).json()["summary"]["totalProcessed"] == 1


async def test_run_once_too_often_is_refused_with_when_to_come_back(api: Api) -> None:
    answers = [await api.call(Role.DEVELOPER, "POST", RUN_ONCE) for _ in range(4)]
    assert [each.status_code for each in answers] == [200, 200, 200, 429]
    assert answers[-1].headers["Retry-After"]


def test_permits_come_back_with_time() -> None:
    now = [0.0]
    rate = RateLimit(2, 1, lambda: now[0])
    rate.acquire()
    with pytest.raises(RateLimited):
        rate.acquire()
    now[0] = 0.5
    rate.acquire()
    with pytest.raises(RateLimited):
        rate.acquire()


async def test_what_a_tick_by_hand_did_shows_in_the_statistics(api: Api, scene: Scene) -> None:
    scene.start("echo", input='{"n":1}')
    scene.abandoned("other")
    for _ in range(2):
        assert (await api.call(Role.DEVELOPER, "POST", RUN_ONCE)).status_code == 200
    stats = (await api.call(Role.DEVELOPER, "GET", RUN_ONCE.replace("run-once", "stats"))).json()
    runtime = stats["runtime"]
    assert (runtime["ticks_total"], runtime["processed_total"]) == (2, 1)
    assert runtime["recovered_stuck_total"] == 1
    text = (await api.call(Role.VIEWER, "GET", "/metrics")).text
    assert "holdfast_reaper_recovered_jobs_total 1.0" in text


async def test_the_statistics_show_the_last_error_of_a_run_once(api: Api, app: Holdfast) -> None:
    @app.job("broken")
    async def broken(job: object) -> None:
        raise ValueError("no such account, token=hunter2hunter2")

    Scene(app.database).start("broken")
    await api.call(Role.DEVELOPER, "POST", RUN_ONCE)
    stats = (await api.call(Role.DEVELOPER, "GET", RUN_ONCE.replace("run-once", "stats"))).json()
    assert stats["runtime"]["last_error"].startswith("ValueError: no such account")
    assert "hunter2" not in stats["runtime"]["last_error"]


async def test_metrics_name_the_worker_and_count_those_that_vanished(
    api: Api, scene: Scene, app: Holdfast
) -> None:
    for each in (
        event("worker_started", worker="w-1", slots=1, types=[], lease_ms=1, heartbeat_ms=1),
        event("worker_vanished", worker="w-0", by="w-1", silent_ms=1),
    ):
        for observer in app._observers:
            observer.observe(each)
    text = (await api.call(Role.VIEWER, "GET", "/metrics")).text
    assert 'holdfast_worker_running{worker="w-1"} 1.0' in text
    assert "holdfast_worker_vanished_total 1.0" in text
    assert "holdfast_fleet_workers 0.0" in text
    assert "holdfast_fleet_reaping 0.0" in text
    scene.worker("echo")
    text = (await api.call(Role.VIEWER, "GET", "/metrics")).text
    assert "holdfast_fleet_workers 1.0" in text
    assert "holdfast_fleet_reaping 1.0" in text


async def test_being_alive_asks_nothing_of_the_database(api: Api, app: Holdfast) -> None:
    app.bind("sqlite:////nowhere/at/all.db")
    assert (await api.call(None, "GET", "/livez")).json() == {"status": "alive"}
    ready = await api.call(None, "GET", "/readyz")
    assert (ready.status_code, ready.json()["reason"]) == (503, "the database is unreachable")


async def test_a_probe_does_not_wait_as_long_as_a_connection_may_take(
    api: Api, app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "TIMEOUT_S", 0.05)
    app.bind("postgresql://nobody@127.0.0.1:1/nothing")
    async with asyncio.timeout(WAIT_S / 2):
        ready = await api.call(None, "GET", "/readyz")
    assert (ready.status_code, ready.json()["reason"]) == (503, "the database is unreachable")


async def test_being_ready_needs_somebody_who_reaps(api: Api, scene: Scene) -> None:
    assert (await api.call(None, "GET", "/readyz")).status_code == 503
    scene.worker("echo")
    assert (await api.call(None, "GET", "/readyz")).json() == {"status": "ready"}


@pytest.mark.parametrize(
    ("ago_s", "ready"),
    [
        ([50], True),
        ([300, 3_900, 7_500], True),
        ([10_900, 14_500, 18_100], False),
        ([4_000], False),
    ],
    ids=["after the first", "between hourly ones", "three hourly ones missed", "no second came"],
)
async def test_an_installation_that_only_ticks_is_ready_between_its_ticks(
    api: Api, scene: Scene, ago_s: list[int], ready: bool
) -> None:
    now = scene.database.read(scene.store.schema.clock())
    for ago in ago_s:
        run = NewRun(new_id(), "tick", "worker-tick-0123456789ab")
        scene.database.run(scene.store.runs.begin(run, now - ago * 1_000_000))
    answer = await api.call(None, "GET", "/readyz")
    assert answer.status_code == (200 if ready else 503), answer.text


async def test_ticks_of_earlier_days_do_not_stand_in_for_a_worker_that_is_gone(
    api: Api, scene: Scene
) -> None:
    now = scene.database.read(scene.store.schema.clock())
    run = NewRun(new_id(), "tick", "worker-tick-0123456789ab")
    scene.database.run(scene.store.runs.begin(run, now - 600 * 1_000_000))
    sign = WorkerSign("w-1", "worker", "host", 1, "1", 10, "[]", "{}", None)
    scene.database.run(scene.store.workers.sign(sign, now - 300 * 1_000_000))
    assert (await api.call(None, "GET", "/readyz")).status_code == 503


async def test_a_lease_that_nobody_takes_back_makes_it_unready(api: Api, scene: Scene) -> None:
    scene.worker("echo")
    token = scene.running(lease_ms=1).token
    now = scene.database.read(scene.store.schema.clock())
    scene.database.run(scene.store.leases.renew([token], now - 3_600_000_000))
    answer = await api.call(None, "GET", "/readyz")
    assert answer.json()["reason"] == "leases have expired and no worker reaps them"


async def test_metrics_tell_the_depth_of_the_queue(api: Api, scene: Scene) -> None:
    scene.failed()
    scene.start()
    text = (await api.call(Role.VIEWER, "GET", "/metrics")).text
    assert re.search(r'^holdfast_queue_depth\{state="failed"\} 1\.0$', text, re.MULTILINE)
    assert "holdfast_queue_oldest_age_seconds" in text


AWAY = "postgresql://nobody@127.0.0.1:1/nothing"


@pytest.mark.parametrize("role", [None, Role.VIEWER], ids=["local", "with a token"])
async def test_metrics_of_the_process_stay_while_the_database_is_away(
    api: Api, app: Holdfast, scene: Scene, role: Role | None
) -> None:
    scene.start("echo")
    async with api.client(role) as client:
        before = (await client.get("/metrics")).text
        app.bind(AWAY)
        async with asyncio.timeout(WAIT_S / 2):
            answer = await client.get("/metrics")
    assert "holdfast_database_up 1.0" in before
    assert answer.status_code == 200
    assert "holdfast_database_up 0.0" in answer.text
    assert "holdfast_lease_lost_total 0.0" in answer.text
    gauges = [each.prometheus for each in METRICS if each.of_database]
    assert "holdfast_queue_depth" in gauges
    for name in gauges:
        assert f"\n{name}" not in answer.text
        assert f"\n{name}" in before or name.startswith(("holdfast_limit_", "holdfast_cycle_"))


async def test_gauges_of_the_database_return_with_it(api: Api, app: Holdfast, url: str) -> None:
    for address, up in ((AWAY, 0), (url, 1), (AWAY, 0), (url, 1)):
        app.bind(address)
        text = (await api.call(None, "GET", "/metrics")).text
        assert f"holdfast_database_up {up}.0" in text
        assert ("holdfast_queue_due_jobs 0.0" in text) == bool(up)


async def test_no_metrics_are_shown_to_a_token_nobody_has_seen_while_the_database_is_away(
    api: Api, app: Holdfast
) -> None:
    bearer = {"Authorization": f"Bearer {new_secret()}"}
    app.bind(AWAY)
    async with asyncio.timeout(WAIT_S / 2):
        answer = await api.call(None, "GET", "/metrics", headers=bearer)
    assert (answer.status_code, answer.json()["code"]) == (503, "HF043")


async def test_metrics_tell_what_is_due_by_type_and_when_the_count_stopped(
    api: Api, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.start("echo")
    scene.start("echo")
    scene.start("other")
    for bound, due, bounded in ((10, 3, 0), (2, 2, 1)):
        monkeypatch.setattr(health, "COUNTED", bound)
        text = (await api.call(None, "GET", "/metrics")).text
        assert f"\nholdfast_queue_due_jobs {due}.0" in text
        assert f"\nholdfast_queue_due_bounded {bounded}.0" in text
        assert 'holdfast_type_due_jobs{type="echo"} 2.0' in text
        assert 'holdfast_type_due_jobs{type="other"} 1.0' in text
        assert re.search(r'holdfast_type_oldest_age_seconds\{type="echo"\} [\d.e-]+', text)


async def test_metrics_tell_how_late_the_cycles_of_this_code_are(
    api: Api, app: Holdfast, scene: Scene
) -> None:
    @app.cycle("hourly", every="1h")
    async def hourly(run: object) -> None: ...

    now = scene.database.read(scene.store.schema.clock())
    (row,) = new_cycles(app.cycle_specs)
    rows = [row, msgspec.structs.replace(row, name="removed")]
    scene.database.run(scene.store.cycles.register(rows, now - 7_300_000_000))
    text = (await api.call(None, "GET", "/metrics")).text
    found = re.findall(r'^holdfast_cycle_lateness_seconds\{cycle="(\w+)"\} (.+)$', text, re.M)
    ((name, late),) = found
    assert name == "hourly"
    assert 0 < float(late) < 7_300
    scene.database.run(scene.store.cycles.pause("hourly", True, "ana"))
    text = (await api.call(None, "GET", "/metrics")).text
    assert 'holdfast_cycle_lateness_seconds{cycle="hourly"} 0.0' in text


async def test_counters_of_registered_types_and_cycles_start_at_zero(
    api: Api, app: Holdfast
) -> None:
    @app.cycle("nightly", every="1d")
    async def nightly(run: object) -> None: ...

    app.observe(api.served.state.site.metrics)
    text = (await api.call(None, "GET", "/metrics")).text
    for series in (
        'job_attempts_total{outcome="failed",type="echo"}',
        'job_dead_letters_total{type="echo"}',
        'cycle_runs_total{cycle="nightly",outcome="failed"}',
        'cycle_items_total{counter="errors",cycle="nightly"}',
    ):
        assert f"holdfast_{series} 0.0" in text


async def test_every_answer_carries_headers_that_bind_browsers(api: Api) -> None:
    for path in ("/livez", "/api/v1/jobs", "/nope"):
        headers = (await api.call(Role.VIEWER, "GET", path)).headers
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Request-Id"]


async def test_a_request_id_that_could_break_a_log_is_replaced(api: Api) -> None:
    answer = await api.call(None, "GET", "/livez", headers={"X-Request-Id": "a b;c"})
    assert re.fullmatch(r"[0-9a-f-]{36}", answer.headers["X-Request-Id"])


async def test_the_description_names_every_route_and_its_role(api: Api) -> None:
    document = (await api.call(None, "GET", "/api/v1/openapi.json")).json()
    described = {
        (method.upper(), path) for path, each in document["paths"].items() for method in each
    }
    assert described == {
        (each.method, re.sub(r"\{(\w+):\w+\}", r"{\1}", each.path)) for each in ROUTES
    }
    operations = [each for path in document["paths"].values() for each in path.values()]
    names = [each["operationId"] for each in operations]
    assert len(names) == len(set(names))


async def test_mounted_elsewhere_it_still_says_the_right_places(api: Api, scene: Scene) -> None:
    outer = Starlette(routes=[Mount("/holdfast", api.served)])
    transport = httpx.ASGITransport(outer, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
        id = scene.start()
        answer = await client.get(f"/holdfast/api/v1/chains/{id}/wait?timeout=1ms")
        assert answer.headers["Location"] == f"/holdfast/api/v1/chains/{id}/wait"
        document = (await client.get("/holdfast/api/v1/openapi.json")).json()
        assert document["servers"] == [{"url": "/holdfast"}]


async def test_all_who_watch_share_one_ear_that_closes_with_the_last(api: Api) -> None:
    heard: list[int] = []

    class Counting(LocalNotifier):
        def listen(self, on_hint: object) -> object:  # type: ignore[override]
            heard.append(1)
            return super().listen(on_hint)  # type: ignore[arg-type]

    notifier = Counting()
    broadcaster = Broadcaster(lambda: notifier)  # type: ignore[arg-type,return-value]
    async with broadcaster.subscribe() as one, broadcaster.subscribe() as other:
        notifier.send([Hint("due", "mail"), Hint("ended")])
        async with asyncio.timeout(PATIENCE_S):
            first, second = await one.next_hint(), await other.next_hint()
        assert first.kinds
        assert second.kinds
        assert broadcaster.subscribers == 2
    assert len(heard) == 1
    async with broadcaster.subscribe():
        assert len(heard) == 2
    notifier.close()


async def test_a_stream_that_is_cancelled_while_it_ends_still_closes_its_ear() -> None:
    closed, thread_is_free = threading.Event(), threading.Event()

    class Ear:
        def close(self) -> None:
            closed.set()

    class Notifying(LocalNotifier):
        def listen(self, on_hint: object) -> Ear:  # type: ignore[override]
            return Ear()

    notifier = Notifying()
    broadcaster = Broadcaster(lambda: notifier)  # type: ignore[arg-type,return-value]
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    occupied = loop.run_in_executor(None, thread_is_free.wait, PATIENCE_S)

    async def watch() -> None:
        async with broadcaster.subscribe():
            await asyncio.Event().wait()

    watching = asyncio.create_task(watch())
    await until(lambda: broadcaster.subscribers)
    # As a server does whose client has left.
    while not watching.done():
        watching.cancel()
        await asyncio.sleep(0)
    thread_is_free.set()
    assert await occupied
    # The one thread does things in turn.
    await loop.run_in_executor(None, notifier.close)
    assert closed.is_set()


async def test_a_stream_that_cannot_listen_is_not_counted_as_open() -> None:
    def refuse() -> Notifier:
        raise OSError("the notifier is gone")

    broadcaster = Broadcaster(refuse)
    with pytest.raises(OSError, match="is gone"):
        async with broadcaster.subscribe():
            pass
    assert broadcaster.subscribers == 0


async def test_a_tail_streams_jobs_as_they_change(api: Api, scene: Scene) -> None:
    scene.failed()
    site = api.served.state.site
    reading = asyncio.create_task(
        api.call(Role.VIEWER, "GET", "/api/v1/tail?filter=state:failed&lines=5")
    )
    await until(lambda: site.broadcaster.subscribers)
    # The transport hands an answer over when it has ended, so the stream is told to end.
    await site.broadcaster.close()
    answer = await reading
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    (data,) = re.findall(r"^data: (.*)$", answer.text, re.MULTILINE)
    assert msgspec.json.decode(data)["state"] == "failed"


@pytest.mark.parametrize(("lines", "told"), [(0, 0), (2, 2), (3, 3), (4, 3), (200, 3)])
async def test_a_tail_begins_with_as_many_lines_as_asked_for(
    api: Api, scene: Scene, lines: int, told: int
) -> None:
    for _ in range(3):
        scene.failed()
    site = api.served.state.site
    reading = asyncio.create_task(api.call(Role.VIEWER, "GET", f"/api/v1/tail?lines={lines}"))
    await until(lambda: site.broadcaster.subscribers)
    await site.broadcaster.close()
    assert (await reading).text.count("event: job") == told


@pytest.mark.parametrize("stream", ["live", "tail"])
async def test_whoever_asks_for_the_head_of_a_stream_gets_no_stream(api: Api, stream: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        answer = await api.call(Role.VIEWER, "HEAD", f"/api/v1/{stream}")
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert api.served.state.site.broadcaster.subscribers == 0


async def test_streams_are_limited_per_principal_and_in_total(app: Holdfast) -> None:
    env = {"HOLDFAST_STREAMS": "3", "HOLDFAST_STREAMS_PER_PRINCIPAL": "2"}
    api = Api(create(app, settings=read_settings(env)), app)
    broadcaster = api.served.state.site.broadcaster
    for role in (Role.VIEWER, Role.OPERATOR, Role.DEVELOPER):
        api.secret(role)

    def open_stream(role: Role, path: str) -> asyncio.Task[httpx.Response]:
        return asyncio.create_task(api.call(role, "GET", f"/api/v1/{path}"))

    readings = [open_stream(Role.VIEWER, "live"), open_stream(Role.VIEWER, "tail")]
    await until(lambda: broadcaster.subscribers == 2)
    refused = await api.call(Role.VIEWER, "GET", "/api/v1/live")
    assert (refused.status_code, refused.json()["code"]) == (429, "HF148")
    assert int(refused.headers["Retry-After"]) > 0
    readings.append(open_stream(Role.OPERATOR, "live"))
    await until(lambda: broadcaster.subscribers == 3)
    refused = await api.call(Role.DEVELOPER, "GET", "/api/v1/tail")
    assert (refused.status_code, refused.json()["code"]) == (503, "HF149")
    assert int(refused.headers["Retry-After"]) > 0
    # The head of a stream takes no place, and everything else is still served.
    for method, path in (("HEAD", "/api/v1/live"), ("GET", "/api/v1/jobs"), ("GET", "/")):
        assert (await api.call(Role.VIEWER, method, path)).status_code == 200
    readings[0].cancel()
    await until(lambda: broadcaster.subscribers == 2)
    readings[0] = open_stream(Role.VIEWER, "tail")
    await until(lambda: broadcaster.subscribers == 3)
    await api.served.state.site.close()
    await asyncio.gather(*readings)


async def test_a_reader_that_leaves_frees_its_stream(app: Holdfast) -> None:
    env = {"HOLDFAST_STREAMS": "1"}
    with serve(create(app, settings=read_settings(env))) as address:
        async with httpx.AsyncClient(base_url=address, timeout=PATIENCE_S) as client:
            for _ in range(3):
                async with served_stream(client, "/api/v1/live"):
                    assert (await client.get("/api/v1/live")).status_code == 503


@asynccontextmanager
async def served_stream(client: httpx.AsyncClient, path: str) -> AsyncIterator[None]:
    """Open a stream, as soon as the server has noticed that the one before was left."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            async with client.stream("GET", path) as stream:
                if stream.status_code == 200:
                    yield
                    return
            await asyncio.sleep(0.05)


async def test_a_revoked_token_ends_the_streams_that_it_opened(
    api: Api, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.api.streams.RECHECK_S", 0)
    readings = [
        asyncio.create_task(api.call(Role.VIEWER, "GET", f"/api/v1/{each}"))
        for each in ("live", "tail")
    ]
    await until(lambda: api.served.state.site.broadcaster.subscribers == 2)
    (token,) = (await api.call(Role.DEVELOPER, "GET", "/api/v1/tokens")).json()["items"][-1:]
    assert token["role"] == "viewer"
    await api.call(Role.DEVELOPER, "POST", f"/api/v1/tokens/{token['id']}/revoke")
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*readings)


async def test_the_doctors_findings_come_the_worst_first(api: Api, scene: Scene) -> None:
    scene.start("nobody.handles")
    found = (await api.call(Role.VIEWER, "GET", "/api/v1/doctor")).json()["items"]
    verdicts = [each["verdict"] for each in found]
    order = ("problem", "warning", "ok")
    assert verdicts == sorted(verdicts, key=order.index)
    assert verdicts[0] != "ok", "a job is due, and nobody works"
    assert {"check", "verdict", "measured"} <= found[0].keys()
