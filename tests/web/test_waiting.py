"""Waiting for a chain over HTTP: ended, going on, failed, gone, and a client that leaves."""

import asyncio
import re

import httpx
import pytest
from starlette.types import Message

from holdfast.admin.access import Role
from holdfast.app import Holdfast
from holdfast.core.errors import ChainNotFound
from holdfast.core.ids import uuid7_text
from holdfast.settings import read_settings
from holdfast.storage.id_generator import new_id
from holdfast.web.app import create
from holdfast.web.http_server import Server
from tests.cli.scene import Scene
from tests.support.until import PATIENCE_S, until
from tests.web.conftest import Api, waiters


def wait_path(id: str, timeout: str = "20s") -> str:
    return f"/api/v1/chains/{id}/wait?timeout={timeout}"


async def test_a_bare_number_is_a_number_of_seconds(api: Api, scene: Scene) -> None:
    id = scene.start("slow")
    for timeout in ("0", "0.01"):
        assert (await api.call(Role.VIEWER, "GET", wait_path(id, timeout))).status_code == 202
    assert (await api.call(Role.VIEWER, "GET", wait_path(id, "-1"))).status_code == 400


async def test_an_ended_chain_answers_at_once_with_its_output(api: Api, scene: Scene) -> None:
    id = scene.ended("complete", output='{"n":1}')
    answer = await api.call(Role.DEVELOPER, "GET", wait_path(id))
    assert answer.status_code == 200
    assert answer.json()["output"] == {"n": 1}
    withheld = await api.call(Role.VIEWER, "GET", wait_path(id))
    assert withheld.json()["output"] is None
    assert withheld.json()["payloads_withheld"]


async def test_a_chain_that_goes_on_is_answered_with_where_to_ask_again(
    api: Api, scene: Scene
) -> None:
    id = scene.start()
    answer = await api.call(Role.VIEWER, "GET", wait_path(id, "50ms"))
    assert answer.status_code == 202
    assert answer.headers["Location"] == f"/api/v1/chains/{id}/wait"
    assert int(answer.headers["Retry-After"]) > 0


async def test_whoever_waits_is_answered_when_the_chain_ends(api: Api, scene: Scene) -> None:
    job = scene.running()
    waiting = asyncio.create_task(api.call(Role.DEVELOPER, "GET", wait_path(job.chain_id)))
    await until(lambda: waiters(api.app))
    await asyncio.to_thread(scene.finish, job, "complete", output='"done"')
    assert (await waiting).json()["output"] == "done"


@pytest.mark.parametrize(("kind", "code"), [("fail", "HF062"), ("cancel", "HF063")])
async def test_a_chain_that_did_not_complete_is_a_problem(
    api: Api, scene: Scene, kind: str, code: str
) -> None:
    id = scene.ended("fail" if kind == "fail" else "cancel", error="ValueError: boom")
    answer = await api.call(Role.VIEWER, "GET", wait_path(id))
    assert (answer.status_code, answer.json()["code"]) == (422, code)


async def test_a_chain_that_is_not_there_is_not_found_however_old_its_id_is(api: Api) -> None:
    old = uuid7_text(1_600_000_000_000, 1, bytes(6))
    for id in (new_id(), old):
        for path in (f"/api/v1/chains/{id}", wait_path(id)):
            answer = await api.call(Role.VIEWER, "GET", path)
            assert (answer.status_code, answer.json()["code"]) == (404, "HF060")
        with pytest.raises(ChainNotFound):
            await api.app.aio.chains.wait(id, 1)


async def test_a_server_that_stops_answers_those_who_wait_at_once(
    app: Holdfast, scene: Scene
) -> None:
    id = scene.start()
    served = create(app, settings=read_settings({}))
    server = Server(served, "127.0.0.1", 0, is_embedded=True)
    serving = asyncio.create_task(server.serve())
    async with httpx.AsyncClient(base_url=str(await server.address()), timeout=PATIENCE_S) as web:
        waiting = asyncio.create_task(web.get(wait_path(id, "60s")))
        await until(lambda: waiters(app))
        server.should_exit = True
        answer = await waiting
    await serving
    assert (answer.status_code, answer.json()["state"]) == (202, "pending"), answer.text
    assert answer.headers["Location"] == f"/api/v1/chains/{id}/wait"


async def test_no_time_to_wait_is_still_time_to_look(api: Api, scene: Scene) -> None:
    """Whoever polls with a timeout of zero learns all the same what became of the chain."""
    ended = scene.ended("complete", output="7")
    answer = await api.call(Role.DEVELOPER, "GET", wait_path(ended, "0"))
    assert (answer.status_code, answer.json()["output"]) == (200, 7)
    failed = await api.call(Role.VIEWER, "GET", wait_path(scene.failed(), "0"))
    assert failed.status_code == 422
    assert (await api.call(Role.VIEWER, "GET", wait_path(new_id(), "0"))).status_code == 404


async def test_a_chain_that_goes_on_is_told_with_the_state_it_is_in(api: Api, scene: Scene) -> None:
    blocked = scene.start(blockers=(scene.start(),))
    answer = await api.call(Role.VIEWER, "GET", wait_path(blocked, "1ms"))
    assert (answer.status_code, answer.json()["state"]) == (202, "blocked")


async def test_a_preference_in_a_header_of_its_own_is_heard(api: Api, scene: Scene) -> None:
    headers = httpx.Headers([("Prefer", "respond-async"), ("Prefer", "wait=0")])
    answer = await api.call(Role.VIEWER, "GET", f"/api/v1/chains/{scene.start()}", headers=headers)
    assert answer.status_code == 202


async def test_prefer_wait_works_on_a_chain_and_on_its_start(api: Api, scene: Scene) -> None:
    id = scene.ended("complete", output="1")
    prefer = {"Prefer": "respond-async, Wait=5"}
    answer = await api.call(Role.DEVELOPER, "GET", f"/api/v1/chains/{id}", headers=prefer)
    assert (answer.status_code, answer.json()["output"]) == (200, 1)
    assert answer.headers["Preference-Applied"] == "wait=5"
    body = {"type": "nobody.handles"}
    prefer = {"Prefer": "wait=0"}
    started = await api.call(Role.DEVELOPER, "POST", "/api/v1/chains", json=body, headers=prefer)
    assert started.status_code == 202
    assert re.fullmatch(r"/api/v1/chains/[0-9a-f-]{36}/wait", started.headers["Location"])


async def test_a_start_is_answered_with_its_place_and_a_key_starts_once(api: Api) -> None:
    body = {"type": "echo", "input": {"n": 1}, "key": "once", "reason": "by hand"}
    first = await api.call(Role.DEVELOPER, "POST", "/api/v1/chains", json=body)
    assert first.status_code == 201
    assert first.headers["Location"] == f"/api/v1/chains/{first.json()['id']}"
    second = await api.call(Role.DEVELOPER, "POST", "/api/v1/chains", json=body)
    assert (second.status_code, second.json()["deduplicated"]) == (200, True)


async def test_a_client_that_goes_is_waited_for_no_longer(api: Api, scene: Scene) -> None:
    id = scene.start()
    gone = asyncio.Event()
    sent: list[Message] = []
    given = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Message:
        for message in given:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    request = httpx.Request("GET", f"http://127.0.0.1/api/v1/chains/{id}/wait")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": request.url.path,
        "raw_path": request.url.raw_path,
        "root_path": "",
        "scheme": "http",
        "query_string": b"timeout=60s",
        "headers": [(b"host", b"127.0.0.1")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    serving = asyncio.create_task(api.served(scope, receive, send))
    await until(lambda: waiters(api.app))
    gone.set()
    async with asyncio.timeout(PATIENCE_S):
        await serving
    assert waiters(api.app) == 0
