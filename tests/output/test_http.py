"""Output over HTTP: the API, and responses of FastAPI, Django and Flask."""

from __future__ import annotations

import asyncio
import json
from types import ModuleType
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.conf import settings
from django.test import AsyncClient, AsyncRequestFactory, Client, RequestFactory, override_settings
from django.urls import path
from fastapi import FastAPI, Request
from flask import Flask
from flask import request as flask_request

import django
from holdfast import Job, Seal
from holdfast.admin.access import Role
from holdfast.app import Holdfast
from holdfast.settings import read_settings
from holdfast.web.app import create
from holdfast_output.django import stream_response as django_stream
from holdfast_output.flask import stream_response as flask_stream
from holdfast_output.starlette import stream_response
from tests.output.scene import OutputScene
from tests.output.test_follow import WAIT_S, Talk
from tests.sealed.conftest import NEW
from tests.support.serving import serve
from tests.support.until import wait_until
from tests.web.conftest import Api

MISSING = "0190163d-8694-739b-aea5-966c26f8ad91"


def events_of(text: str) -> list[tuple[str | None, str, Any]]:
    """The id, the kind and the data of each event of a stream."""
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "data" in lines:
            data = json.loads(lines["data"])
            found.append((lines.get("id"), lines.get("event", "message"), data))
    return found


@pytest.fixture
def spoken(scene: OutputScene) -> tuple[OutputScene, Any]:
    """A chain that has ended, with what it said."""

    @scene.job("chat")
    async def chat(job: Job[Any]) -> None:
        for word in ("to", {"password": "hunter2"}, "be"):
            job.emit(word)

    chain = scene.start("chat")
    scene.run()
    return scene, chain


async def test_viewers_see_that_something_was_said_and_developers_what(
    spoken: tuple[OutputScene, Any],
) -> None:
    scene, chain = spoken
    path = f"/api/v1/chains/{chain.id}/output"
    served = create(scene.app, settings=read_settings({}))
    api = Api(served, scene.app)
    seen = (await api.call(Role.VIEWER, "GET", path)).json()
    assert ([each["data"] for each in seen["items"]], seen["data_withheld"]) == ([None] * 3, True)
    shown = (await api.call(Role.DEVELOPER, "GET", f"{path}?after=1")).json()
    assert [each["id"] for each in shown["items"]] == [2, 3]
    assert shown["items"][0]["data"]["password"] != "hunter2"
    assert (await api.call(None, "GET", path)).status_code == 401
    for wrong, status, code in (
        (f"/api/v1/chains/{uuid4()}/output", 404, "HF060"),
        (f"/api/v1/chains/{uuid4()}/output/stream", 404, "HF060"),
        (f"{path}?after=x", 422, "HF208"),
        (f"{path}/stream?after=-1", 422, "HF208"),
    ):
        refused = await api.call(Role.VIEWER, "GET", wrong)
        assert (refused.status_code, refused.json()["code"]) == (status, code), wrong
    await served.state.site.close()


async def test_the_api_streams_events_and_goes_on_after_the_last_one(
    spoken: tuple[OutputScene, Any],
) -> None:
    scene, chain = spoken
    path = f"/api/v1/chains/{chain.id}/output/stream"
    served = create(scene.app, settings=read_settings({}))
    api = Api(served, scene.app)
    whole = await api.call(Role.DEVELOPER, "GET", path)
    assert whole.headers["content-type"].startswith("text/event-stream")
    events = events_of(whole.text)
    assert [each[:2] for each in events] == [
        ("1", "message"),
        ("2", "message"),
        ("3", "message"),
        (None, "end"),
    ]
    assert events[0][2]["data"] == "to"
    assert events[-1][2] == {"state": "completed"}
    rest = await api.call(Role.DEVELOPER, "GET", path, headers={"Last-Event-ID": "2"})
    assert [each[0] for each in events_of(rest.text)] == ["3", None]
    await served.state.site.close()


async def test_what_is_sealed_stays_sealed_where_the_key_is_not(sqlite_url: str) -> None:
    scene = OutputScene(sqlite_url, seal=Seal({"k": NEW}))

    @scene.job("secret", sealed=True)
    async def secret(job: Job[Any]) -> None:
        job.emit("name")

    chain = scene.start("secret", "in")
    await asyncio.to_thread(scene.run)
    keyless = Holdfast(sqlite_url)
    served = create(keyless, settings=read_settings({}))
    found = await Api(served, keyless).call(
        Role.DEVELOPER, "GET", f"/api/v1/chains/{chain.id}/output"
    )
    assert [each["data"] for each in found.json()["items"]] == [{"sealed": {"key": "k"}}]
    await served.state.site.close()
    await keyless.aclose()
    scene.close()


def fastapi_site(scene: OutputScene) -> FastAPI:
    """An application that streams chains, from an async and a sync endpoint."""
    site = FastAPI()

    @site.get("/chats/{chain}")
    async def follow(chain: str, request: Request) -> Any:
        return stream_response(scene.output, chain, request)

    @site.get("/sync/{chain}")
    def follow_sync(chain: str, request: Request) -> Any:
        return stream_response(scene.output, chain, request)

    return site


@pytest.mark.parametrize("place", ["chats", "sync"])
def test_fastapi_streams_while_the_handler_runs(scene: OutputScene, place: str) -> None:
    talk = Talk(scene)
    chain = scene.start("talk", ["a", "b", "c"])
    got: list[Any] = []
    with scene.working(), serve(fastapi_site(scene)) as address:
        talk.asked.release()
        with httpx.stream("GET", f"{address}/{place}/{chain.id}", timeout=WAIT_S) as response:
            for line in response.iter_lines():
                if line.startswith("data: "):
                    got.append(json.loads(line.removeprefix("data: ")))
                    talk.asked.release()
    assert [each.get("data") for each in got] == ["a", "b", "c", None]
    assert got[-1] == {"state": "completed"}


def test_a_browser_that_was_cut_off_goes_on_where_it_was(spoken: tuple[OutputScene, Any]) -> None:
    scene, chain = spoken
    with serve(fastapi_site(scene)) as address:
        answer = httpx.get(f"{address}/chats/{chain.id}", headers={"Last-Event-ID": "2"})
    assert [each[:2] for each in events_of(answer.text)] == [("3", "message"), (None, "end")]


def test_a_reader_that_goes_away_is_forgotten(scene: OutputScene) -> None:
    talk = Talk(scene)
    chain = scene.start("talk", ["a", "b"])
    following = scene.output._following
    with scene.working(), serve(fastapi_site(scene)) as address:
        talk.asked.release()
        with httpx.stream("GET", f"{address}/chats/{chain.id}", timeout=WAIT_S) as response:
            lines = response.iter_lines()
            while not next(lines).startswith("data"):
                pass
            assert list(following._readers) == [str(chain.id)]
        talk.asked.release()
        wait_until(lambda: not following._readers)


def test_flask_streams(spoken: tuple[OutputScene, Any]) -> None:
    scene, chain = spoken
    answer = (
        flask_site(scene).test_client().get(f"/chats/{chain.id}", headers={"Last-Event-ID": "1"})
    )
    assert answer.mimetype == "text/event-stream"
    assert [each[0] for each in events_of(answer.text)] == ["2", "3", None]


def flask_site(scene: OutputScene) -> Flask:
    """The same with Flask."""
    site = Flask("chats")

    @site.get("/chats/<id>")
    def follow(id: str) -> Any:
        return flask_stream(scene.output, id, flask_request)

    return site


def django_urls(scene: OutputScene) -> Any:
    """A module of URLs for Django: a sync and an async view."""

    def follow(request: Any, id: str) -> Any:
        return django_stream(scene.output, id, request)

    async def follow_async(request: Any, id: str) -> Any:
        return django_stream(scene.output, id, request)

    views = [path("chats/<id>", follow), path("async/<id>", follow_async)]
    module: Any = ModuleType("urls")
    module.urlpatterns = views
    return module


async def answers_of(
    scene: OutputScene, id: str, headers: dict[str, str]
) -> list[tuple[int, str, Any]]:
    """What each framework answers to a reader: status, media type and code."""
    transport = httpx.ASGITransport(fastapi_site(scene))
    async with httpx.AsyncClient(transport=transport, base_url="http://chats") as client:
        seen: list[Any] = [
            await client.get(f"/{each}/{id}", headers=headers) for each in ("chats", "sync")
        ]
    flask = flask_site(scene).test_client()
    seen.append(await asyncio.to_thread(flask.get, f"/chats/{id}", headers=headers))
    configure_django()
    with override_settings(ROOT_URLCONF=django_urls(scene)):
        visit = Client().get
        seen.append(await asyncio.to_thread(visit, f"/chats/{id}", headers=headers))
        for each in ("chats", "async"):
            seen.append(await AsyncClient().get(f"/{each}/{id}", headers=headers))
    return [
        (each.status_code, each.headers["content-type"], json.loads(_body(each))["code"])
        for each in seen
    ]


def _body(answer: Any) -> bytes:
    body: bytes = answer.data if hasattr(answer, "data") else answer.content
    return body


@pytest.mark.parametrize(("id", "position"), [(MISSING, "0"), ("no-id", "0"), (MISSING, "x")])
async def test_what_cannot_be_streamed_is_answered_before_the_stream_begins(
    scene: OutputScene, id: str, position: str
) -> None:
    served = create(scene.app, settings=read_settings({}))
    headers = {"Last-Event-ID": position}
    ours = await Api(served, scene.app).call(
        Role.DEVELOPER, "GET", f"/api/v1/chains/{id}/output/stream", headers=headers
    )
    wanted = (ours.status_code, "application/problem+json", ours.json()["code"])
    assert wanted[0] in (400, 404, 422)
    assert await answers_of(scene, id, headers) == [wanted] * 6
    await served.state.site.close()


def configure_django() -> None:
    """Have settings, as a project has."""
    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"])
        django.setup()


def test_django_streams_under_wsgi(spoken: tuple[OutputScene, Any]) -> None:
    scene, chain = spoken
    configure_django()
    request = RequestFactory().get("/", headers={"Last-Event-ID": "1"})
    response: Any = django_stream(scene.output, chain, request)
    text = b"".join(response).decode()
    assert response["Content-Type"] == "text/event-stream"
    assert [each[0] for each in events_of(text)] == ["2", "3", None]


async def test_django_streams_under_asgi(spoken: tuple[OutputScene, Any]) -> None:
    scene, chain = spoken
    configure_django()
    request = AsyncRequestFactory().get("/")
    response: Any = django_stream(scene.output, chain, request, after=2)
    assert response.is_async
    text = b"".join([each async for each in response]).decode()
    assert [each[0] for each in events_of(text)] == ["3", None]
    await scene.app.aclose()
