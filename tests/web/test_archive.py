"""The archive over HTTP and on its pages: reading for viewers, work for operators and developers, all of it audited."""

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.admin.access import Role
from holdfast.app import Holdfast
from holdfast.core.errors import Aborted
from holdfast_archive import Archive, Progress
from holdfast_archive import admin as admin_archive
from holdfast_archive.admin import ArchiveAdmin
from tests.archive.scene import OCTOBER, SEPTEMBER, Deliveries, damage, declare
from tests.cli.scene import Scene
from tests.support.until import until
from tests.web.conftest import Api

MANIFESTS = "/api/v1/archive/manifests"
FORM = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the objects are."""
    return tmp_path / "archive"


@pytest.fixture
def deliveries(app: Holdfast, url: str, root: Path) -> Deliveries:
    """The table of the application, archived once."""
    found = Deliveries(url)
    found.create()
    assert declare(app, root).run().periods == 2
    return found


async def test_viewers_read_manifests_and_totals(api: Api, deliveries: Deliveries) -> None:
    overview = (await api.call(Role.VIEWER, "GET", "/api/v1/archive")).json()
    (source,) = overview["sources"]
    assert overview["configured"] is True
    assert (source["source"], source["states"], source["rows"]) == (
        "deliveries",
        {"verified": 2},
        100,
    )
    first = (await api.call(Role.VIEWER, "GET", MANIFESTS, params={"limit": 1})).json()
    assert [each["name"] for each in first["items"]] == [OCTOBER]
    after = {"limit": 1, "after": first["next"]}
    second = (await api.call(Role.VIEWER, "GET", MANIFESTS, params=after)).json()
    assert ([each["name"] for each in second["items"]], second["next"]) == ([SEPTEMBER], None)
    wrong = await api.call(Role.VIEWER, "GET", MANIFESTS, params={"after": "no cursor"})
    assert (wrong.status_code, wrong.json()["code"]) == (400, "HF071")
    failed = await api.call(Role.VIEWER, "GET", MANIFESTS, params={"state": "failed"})
    assert failed.json()["items"] == []
    one = (await api.call(Role.VIEWER, "GET", f"{MANIFESTS}/{OCTOBER}")).json()
    assert (one["rows"], one["state"], one["work"]) == (50, "verified", None)
    assert one.keys().isdisjoint({"token", "definition"})
    by_id = await api.call(Role.VIEWER, "GET", f"{MANIFESTS}/{one['id']}")
    assert by_id.json()["name"] == OCTOBER
    missing = await api.call(Role.VIEWER, "GET", f"{MANIFESTS}/deliveries/1999-01/0")
    assert (missing.status_code, missing.json()["code"]) == (404, "HF110")


async def test_operators_verify_and_developers_restore(
    api: Api, deliveries: Deliveries, scene: Scene
) -> None:
    verify, restore = f"{MANIFESTS}/{OCTOBER}/verify", f"{MANIFESTS}/{OCTOBER}/restore"
    assert (await api.call(Role.VIEWER, "POST", verify)).status_code == 403
    assert (await api.call(Role.OPERATOR, "POST", restore)).status_code == 403
    checked = await api.call(Role.OPERATOR, "POST", verify, json={"reason": "audit"})
    assert (checked.status_code, checked.json()["is_done"]) == (200, True)
    deliveries.execute("delete from deliveries")
    restored = await api.call(Role.DEVELOPER, "POST", restore)
    assert restored.status_code == 200
    assert (restored.json()["inserted"], restored.json()["skipped"]) == (50, 0)
    assert deliveries.count() == 50
    into = await api.call(Role.DEVELOPER, "POST", restore, json={"into": "deliveries_copy"})
    assert into.json()["inserted"] == 50
    nowhere = await api.call(Role.DEVELOPER, "POST", restore, json={"into": ""})
    assert nowhere.status_code == 400
    assert [deed[:2] for deed in scene.deeds()] == [
        ("archive.verify", f"manifest {OCTOBER}"),
        ("archive.restore", f"manifest {OCTOBER}"),
        ("archive.restore", f"manifest {OCTOBER}"),
    ]


async def test_a_damaged_object_is_a_conflict_and_shows_on_the_page(
    api: Api, deliveries: Deliveries, root: Path
) -> None:
    damage(root, OCTOBER)
    answer = await api.call(Role.OPERATOR, "POST", f"{MANIFESTS}/{OCTOBER}/verify")
    assert (answer.status_code, answer.json()["code"]) == (409, "HF111")
    one = (await api.call(Role.VIEWER, "GET", f"{MANIFESTS}/{OCTOBER}")).json()
    assert (one["state"], one["work"]["is_done"]) == ("failed", True)
    assert one["work"]["error"]
    page = await api.call(Role.VIEWER, "GET", f"/archive/{OCTOBER}")
    assert "Verify failed: " in page.text


async def test_work_that_takes_long_goes_on_after_the_answer(
    api: Api, deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = _slow(monkeypatch)
    path = f"{MANIFESTS}/{OCTOBER}/verify"
    accepted = await api.call(Role.OPERATOR, "POST", path)
    assert (accepted.status_code, accepted.json()["is_done"]) == (202, False)
    page = await api.call(Role.OPERATOR, "GET", f"/archive/{OCTOBER}")
    assert "Verify: verify, 7 of 50 rows" in page.text
    busy = await api.call(Role.OPERATOR, "POST", path)
    assert (busy.status_code, busy.json()["code"]) == (409, "HF115")
    go_on.set()
    archive = api.served.state.site.service.of(ArchiveAdmin)
    await until(lambda: all(each.is_done for each in archive._works.values()))
    one = (await api.call(Role.VIEWER, "GET", f"{MANIFESTS}/{OCTOBER}")).json()
    assert (one["work"]["is_done"], one["work"]["error"]) == (True, None)


async def test_work_that_fails_after_the_answer_is_reported_and_not_logged_by_the_loop(
    api: Api, deliveries: Deliveries, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    monkeypatch.setattr(admin_archive, "PATIENCE_S", 0.0)
    damage(root, OCTOBER)
    path = f"{MANIFESTS}/{OCTOBER}/verify"
    assert (await api.call(Role.OPERATOR, "POST", path)).status_code == 202
    archive = api.served.state.site.service.of(ArchiveAdmin)
    await until(lambda: not archive._tasks)
    gc.collect()
    one = (await api.call(Role.VIEWER, "GET", f"{MANIFESTS}/{OCTOBER}")).json()
    assert one["work"]["error"]
    assert logged == []


def _slow(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let verifying wait after a part of the rows; requests lose their patience at once."""
    go_on = threading.Event()
    verify = Archive.verify

    def wait(self: Archive, manifest: str, on_progress: Any) -> Any:
        on_progress(Progress("verify", OCTOBER, 7, 50))
        while not go_on.wait(0.01):
            on_progress(Progress("verify", OCTOBER, 7, 50))
        return verify(self, manifest, on_progress)

    monkeypatch.setattr(Archive, "verify", wait)
    monkeypatch.setattr(admin_archive, "PATIENCE_S", 0.2)
    return go_on


async def test_a_server_that_stops_ends_the_work(
    api: Api, deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    _slow(monkeypatch)
    accepted = await api.call(Role.OPERATOR, "POST", f"{MANIFESTS}/{OCTOBER}/verify")
    assert accepted.status_code == 202
    archive = api.served.state.site.service.of(ArchiveAdmin)
    (task,) = archive._tasks.values()
    await api.served.state.site.close()
    assert isinstance(task.exception(), Aborted)


async def test_a_cancelled_caller_ends_the_work(
    api: Api, deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.admin.access import LOCAL, Caller

    _slow(monkeypatch)
    archive, began = api.served.state.site.service.of(ArchiveAdmin), asyncio.Event()
    loop = asyncio.get_running_loop()
    work = asyncio.create_task(
        archive.verify(Caller(LOCAL), OCTOBER, lambda _: loop.call_soon_threadsafe(began.set))
    )
    await began.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_a_run_is_asked_of_the_workers(api: Api, deliveries: Deliveries) -> None:
    run = "/api/v1/archive/run"
    unknown = await api.call(Role.OPERATOR, "POST", run)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "HF082")
    summary = await api.call(Role.DEVELOPER, "POST", "/api/settings/events/outbox/run-once")
    assert summary.status_code == 200
    assert (await api.call(Role.VIEWER, "POST", run)).status_code == 403
    assert (await api.call(Role.OPERATOR, "POST", run)).status_code == 202
    await api.call(Role.DEVELOPER, "POST", "/api/settings/events/outbox/run-once")
    assert deliveries.count() == 0
    runs = await api.call(
        Role.VIEWER, "GET", "/api/v1/cycles/runs", params={"name": "archiveExport"}
    )
    (only,) = runs.json()["items"]
    assert (only["outcome"], only["counters"]["dropped"]) == ("completed", 100)


async def test_the_pages_show_manifests_and_act_on_them(
    api: Api, deliveries: Deliveries, scene: Scene
) -> None:
    page = await api.call(Role.VIEWER, "GET", "/archive")
    assert page.text.index(OCTOBER) < page.text.index(SEPTEMBER)
    assert "Run now" not in page.text
    nothing = await api.call(Role.VIEWER, "GET", "/archive?state=failed&source=deliveries")
    assert "None matches." in nothing.text
    one = await api.call(Role.OPERATOR, "GET", f"/archive/{OCTOBER}")
    assert ("Verify" in one.text, ">Restore<" in one.text) == (True, False)
    assert ">Restore<" in (await api.call(Role.DEVELOPER, "GET", f"/archive/{OCTOBER}")).text
    deliveries.execute("delete from deliveries")
    for move, role in (("verify", Role.OPERATOR), ("restore", Role.DEVELOPER)):
        data = {"move": move, "name": OCTOBER, "back": f"/archive/{OCTOBER}", "reason": "why"}
        moved = await api.call(role, "POST", "/archive", data=data, headers=FORM)
        assert moved.status_code == 303, moved.text
        assert f"done={move}" in moved.headers["location"]
    assert deliveries.count() == 50
    assert [deed[0] for deed in scene.deeds()] == ["archive.verify", "archive.restore"]
    missing = await api.call(Role.VIEWER, "GET", "/archive/deliveries/1999-01/0")
    assert missing.status_code == 404


async def test_an_empty_archive_says_how_to_fill_it(api: Api) -> None:
    page = await api.call(Role.VIEWER, "GET", "/archive")
    assert "Nothing archived yet" in page.text
    assert "HOLDFAST_ARCHIVE" in page.text
