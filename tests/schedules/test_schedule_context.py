"""Schedules that are set in a context start their jobs in it."""

from __future__ import annotations

import json
from contextvars import ContextVar
from datetime import timedelta

import httpx
import pytest
from click.testing import CliRunner

from holdfast.admin.access import Caller, Principal, Role
from holdfast.admin.service import Service
from holdfast.cli.main import cli
from holdfast.core.errors import ContextInvalid
from holdfast.settings import read_settings
from holdfast.web.app import create
from holdfast_context import add_context
from holdfast_schedules.admin import ScheduleAdmin, ScheduleRequest
from tests.schedules.scene import ScheduleScene

TENANT: ContextVar[str] = ContextVar("tenant", default="")
DEVELOPER = Caller(Principal("ana", Role.DEVELOPER))


@pytest.fixture
def tenants(scene: ScheduleScene) -> ScheduleScene:
    """Schedules of an application whose requests have a tenant."""
    add_context(
        scene.app,
        capture=lambda: {"tenant": TENANT.get()} if TENANT.get() else {},
        names=("tenant",),
    )
    return scene


def set_as(
    scene: ScheduleScene, tenant: str, name: str, context: dict[str, str] | None = None
) -> None:
    token = TENANT.set(tenant)
    try:
        with scene.app.transaction() as tx:
            scene.schedules.set(
                tx, name, "report.send", {"customer": 7}, every="1h", context=context
            )
    finally:
        TENANT.reset(token)


def test_jobs_are_started_in_the_context_in_which_a_schedule_was_set(
    tenants: ScheduleScene,
) -> None:
    set_as(tenants, "acme", "a")
    set_as(tenants, "acme", "b", context={"tenant": "globex"})
    set_as(tenants, "", "c")
    kept = {each.name: each.context for each in tenants.schedules.list()}
    assert kept == {"a": {"tenant": "acme"}, "b": {"tenant": "globex"}, "c": {}}
    tenants.clock.advance(timedelta(hours=1))
    tenants.kit.run_until_idle()
    with tenants.app.transaction() as tx:
        now = tenants.schedules.run_now(tx, "a")
    found = {str(each.key): each.context for each in tenants.app.jobs.list().items}
    assert sorted(str(each) for each in found.values()) == sorted(
        str(each) for each in ({"tenant": "acme"}, {"tenant": "acme"}, {"tenant": "globex"}, {})
    )
    assert tenants.app.jobs.get(now.id).context == {"tenant": "acme"}


def test_a_schedule_that_is_set_again_is_the_one_of_its_last_context(
    tenants: ScheduleScene,
) -> None:
    set_as(tenants, "acme", "a")
    set_as(tenants, "globex", "a")
    assert tenants.schedules.get("a").context == {"tenant": "globex"}
    with pytest.raises(ContextInvalid):
        set_as(tenants, "acme", "a", context={"tennant": "acme"})


async def test_what_is_changed_by_hand_keeps_its_context(tenants: ScheduleScene) -> None:
    set_as(tenants, "acme", "a")
    admin = Service(tenants.app, read_settings({})).of(ScheduleAdmin)
    asked = ScheduleRequest("a", "report.send", {"customer": 8}, every="2h")
    await admin.set(DEVELOPER, asked)
    assert tenants.schedules.get("a").context == {"tenant": "acme"}
    other = ScheduleRequest(
        "a", "report.send", {"customer": 8}, every="2h", context={"tenant": "globex"}
    )
    await admin.set(DEVELOPER, other)
    served = create(tenants.app, settings=read_settings({}))
    transport = httpx.ASGITransport(served, client=("127.0.0.1", 50_000))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        (item,) = (await client.get("/api/v1/schedules")).json()["items"]
        assert item["context"] == {"tenant": "globex"}
        assert "globex" in (await client.get("/schedule", params={"name": "a"})).text
    await served.state.site.close()


def test_the_command_line_sets_and_shows_a_context(
    tenants: ScheduleScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", tenants.url)
    base = ["schedules", "set", "a", "report.send", "7", "--every", "1h", "--new-type"]
    made = CliRunner().invoke(cli, [*base, "--context", "tenant=acme"])
    assert made.exit_code == 0, made.output
    listed = CliRunner().invoke(cli, ["schedules", "list"])
    assert "tenant=acme" in listed.output
    shown = CliRunner().invoke(cli, ["schedules", "list", "-o", "json"])
    assert json.loads(shown.stdout)[0]["context"] == {"tenant": "acme"}
