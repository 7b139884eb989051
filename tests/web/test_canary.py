"""A secret in payloads, errors and progress appears in no answer, no page, no log and no audit."""

import logging

import pytest

from holdfast.admin.access import Role
from holdfast.core.records import NewProgress
from holdfast.web.openapi import ROUTES
from holdfast_dashboard.page_dispatch import ROUTES as PAGES
from tests.cli.scene import Scene
from tests.support.limited_scene import MAIL, LimitedScene
from tests.web.conftest import Api

CANARY = "hf_canary0canary1canary2canary3"
TEXT = f"LoginError: password={CANARY} for https://ana:{CANARY}@example.org"
QUIET = "text/event-stream"


def fill(scene: Scene) -> list[str]:
    """Put the secret wherever a user's code could; return the ids of the jobs."""
    dead = scene.failed(TEXT)
    done = scene.ended("complete", "pdf", output=f'{{"api_key":"{CANARY}"}}')
    retried = scene.running("retried")
    scene.finish(retried, "retry", error=TEXT, delay_ms=60_000)
    running = scene.running("slow")
    said = NewProgress(running.id, running.token, running.fence, 0.5, f"token={CANARY}")
    scene.database.run(scene.store.leases.report([said]))
    waiting = scene.start("waits", input=f'{{"password":"{CANARY}"}}')
    return [dead, done, retried.id, running.id, waiting]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.DEVELOPER], ids=lambda each: each.word)
async def test_a_secret_is_shown_nowhere(
    api: Api, scene: Scene, role: Role, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ids = fill(scene)
    reads = [
        *(each.path for each in ROUTES if each.method == "GET" and each.media != QUIET),
        *(each.path for each in PAGES if each.method == "GET"),
    ]
    paths = [
        path.replace("{id}", id)
        for path in reads
        for id in (ids if "{id}" in path and not path.endswith("/wait") else ids[:1])
    ]
    paths += [f"/start?like={id}" for id in ids] + ["/types/mail.send", "/start?type=mail.send"]
    for path in paths:
        answer = await api.call(role, "GET", path)
        assert answer.status_code in (200, 403, 404, 422, 503), f"{path}: {answer.status_code}"
        assert CANARY not in answer.text, path
    retry = {"ids": ids[:1], "reason": f"the token={CANARY} was renewed"}
    await api.call(Role.OPERATOR, "POST", "/api/v1/jobs/retry", json=retry)
    for path in ("/api/v1/audit", "/audit"):
        assert CANARY not in (await api.call(role, "GET", path)).text
    assert CANARY not in caplog.text


async def test_a_secret_in_the_reason_of_a_pause_is_shown_nowhere(api: Api, scene: Scene) -> None:
    limited = LimitedScene(scene)
    limited.declare(MAIL)
    (waiting,) = limited.start(MAIL, "7")
    pause = {"key": "7", "duration": "10m", "reason": f"until the token={CANARY} is renewed"}
    path = "/api/v1/limits/mail.send/rest"
    paused = await api.call(Role.OPERATOR, "POST", path, json=pause)
    assert paused.status_code == 200, paused.text
    assert CANARY not in paused.text
    listed = await api.call(Role.VIEWER, "GET", "/api/v1/limits")
    assert "until the token=" in listed.text
    for path in ("/api/v1/limits", f"/api/v1/jobs/{waiting}", "/api/v1/audit", "/types/mail.send"):
        assert CANARY not in (await api.call(Role.VIEWER, "GET", path)).text, path
