"""Roles that are limited to one tenant: over HTTP and on the pages they see and change its jobs, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from holdfast import Holdfast, Job
from holdfast.admin.access import Caller, Principal, Role
from holdfast.admin.service import AdminService
from holdfast.cli.main import cli
from holdfast.core.errors import JobNotFound, OutsideContext
from holdfast.web.app import create_app


class LimitedScene:
    """Jobs of two tenants, and a client with a token for those of one."""

    def __init__(self, url: str) -> None:
        self.app = Holdfast(url)

        @self.app.job("mail.send")
        def send(job: Job[Any]) -> None: ...

        with self.app.transaction() as tx:
            self.own = str(self.app.start(tx, "mail.send", 1, context={"tenant": "acme"}).id)
            self.other = str(self.app.start(tx, "mail.send", 2, context={"tenant": "globex"}).id)
            self.bare = str(self.app.start(tx, "mail.send", 3).id)
        made = CliRunner().invoke(
            cli,
            ["token", "create", "--role", "operator", "--context", "tenant=acme", "--name", "ana"]
            + ["-o", "id", "--url", url],
        )
        assert made.exit_code == 0, made.output
        self.secret = made.stdout.strip()
        self.http = TestClient(create_app(self.app), raise_server_exceptions=False)

    def ask(self, method: str, path: str, **options: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.secret}"}
        return self.http.request(method, path, headers=headers, **options)

    def close(self) -> None:
        self.http.close()
        self.app.close()


@pytest.fixture(params=["postgres", "sqlite"])
def scene(request: pytest.FixtureRequest) -> Iterator[LimitedScene]:
    """The scene on either database."""
    scene = LimitedScene(request.getfixturevalue(f"{request.param}_url"))
    yield scene
    scene.close()


def test_lists_have_only_jobs_of_the_tenant(scene: LimitedScene) -> None:
    for filter in ("", "state:pending", "context.tenant:acme", f"id:{scene.own},{scene.other}"):
        found = scene.ask("GET", "/api/v1/jobs", params={"filter": filter}).json()["items"]
        assert [each["id"] for each in found] == [scene.own], filter
    found = scene.ask("GET", "/api/v1/jobs", params={"filter": "context.tenant:globex"}).json()
    assert found["items"] == []
    assert scene.ask("GET", "/api/v1/jobs/count").json()["count"] == 1
    exported = scene.ask("GET", "/api/v1/jobs/export", params={"format": "json"}).json()
    assert [each["id"] for each in exported] == [scene.own]


def test_only_jobs_of_the_tenant_are_shown_and_changed(scene: LimitedScene) -> None:
    assert scene.ask("GET", f"/api/v1/jobs/{scene.own}").status_code == 200
    for job in (scene.other, scene.bare):
        for method, path in (
            ("GET", f"/api/v1/jobs/{job}"),
            ("GET", f"/api/v1/jobs/{job}/steps"),
            ("POST", f"/api/v1/jobs/{job}/cancel"),
            ("POST", f"/api/v1/jobs/{job}/run-now"),
        ):
            answer = scene.ask(method, path)
            assert (answer.status_code, answer.json()["code"]) == (403, "HF204"), path
    both = scene.ask("POST", "/api/v1/jobs/cancel", json={"ids": [scene.own, scene.other]})
    assert both.status_code == 403
    states = [scene.app.jobs.get(each).state for each in (scene.own, scene.other)]
    assert states == ["pending", "pending"]
    assert scene.ask("POST", f"/api/v1/jobs/{scene.own}/cancel").status_code == 200
    assert scene.app.jobs.get(scene.own).state == "cancelled"


@pytest.mark.parametrize(
    "path", ["chains", "workers", "types", "cycles", "overview", "audit", "tokens", "dead"]
)
def test_everything_else_is_refused(scene: LimitedScene, path: str) -> None:
    answer = scene.ask("GET", f"/api/v1/{path}")
    assert answer.status_code in (403, 404)
    if answer.status_code == 403:
        assert answer.json()["code"] in ("HF204", "HF090")


def test_a_role_has_no_more_rights_within_its_context(sqlite_url: str) -> None:
    scene = LimitedScene(sqlite_url)
    service = AdminService(scene.app)
    viewer = Caller(Principal("ana", Role.VIEWER, ("tenant", "acme")))

    async def run() -> None:
        assert (await service.jobs.get(viewer, scene.own)).job["payloads_withheld"]
        with pytest.raises(OutsideContext):
            await service.jobs.find(viewer, scene.other)
        with pytest.raises(JobNotFound):
            await service.jobs.get(viewer, "0193a6f0-7c00-7000-8000-000000000000")

    asyncio.run(run())
    scene.close()


def test_a_context_that_cannot_be_one_is_refused(sqlite_url: str) -> None:
    Holdfast(sqlite_url).close()
    made = CliRunner().invoke(
        cli, ["token", "create", "--role", "viewer", "--context", "tenant", "--url", sqlite_url]
    )
    assert made.exit_code == 2
    assert "HF201" in made.output
