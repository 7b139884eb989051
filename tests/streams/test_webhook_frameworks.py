"""Webhooks in applications of other frameworks: FastAPI, Flask and Django."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.test import RequestFactory
from fastapi import FastAPI
from flask import Flask

import django
from holdfast_streams import Message, hmac_signature, inbox_blueprint, inbox_routes, inbox_view
from holdfast_streams.inbox.event_loop import run_on_loop
from tests.streams.inbox_scene import HEADER, SECRET, InboxScene, over_asgi, signed

Post = Callable[[str, dict[str, Any]], tuple[int, Any]]


def flask_post(scene: InboxScene) -> Post:
    """Posts to a Flask application."""
    site = Flask("shop")
    site.register_blueprint(inbox_blueprint(scene.app))
    client = site.test_client()

    def post(name: str, sent: dict[str, Any]) -> tuple[int, Any]:
        answer = client.post(f"/inbox/{name}", data=sent["content"], headers=sent["headers"])
        return answer.status_code, answer.get_json(force=True)

    return post


def django_post(scene: InboxScene) -> Post:
    """Posts to a view of Django."""
    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"])
        django.setup()
    view, factory = inbox_view(scene.app), RequestFactory()

    def post(name: str, sent: dict[str, Any]) -> tuple[int, Any]:
        import json

        request = factory.post(
            f"/inbox/{name}",
            sent["content"],
            content_type="application/json",
            headers=sent["headers"],
        )
        answer = view(request, name)
        return answer.status_code, json.loads(answer.content)

    return post


@pytest.mark.parametrize("make", [flask_post, django_post])
def test_sync_frameworks_take_webhooks_with_sync_and_async_handlers(
    inbox: InboxScene, make: Callable[[InboxScene], Post]
) -> None:
    verify = hmac_signature(SECRET, header=HEADER)
    http = inbox.streams.inbox.http

    @http("plain", verify=verify, id=lambda request: request.json["id"], limit=100)
    def plain(message: Message[Any], tx: Any) -> None:
        inbox.note(message, tx)

    @http("awaited", verify=verify, id=lambda request: request.json["id"])
    async def awaited(message: Message[Any], tx: Any) -> None:
        await tx.execute(inbox.write, (message.data["n"], message.id, None))

    post = make(inbox)
    for n, name in enumerate(("plain", "awaited")):
        sent = signed({"id": "evt_1", "n": n})
        assert post(name, sent) == (200, {"id": "evt_1", "status": "received"})
        assert post(name, sent)[1]["status"] == "already received"
        status, problem = post(name, signed({"id": "evt_1", "n": n}, "wrong"))
        assert (status, problem["code"]) == (401, "HF192")
    status, problem = post("plain", signed({"id": "x" * 100, "n": 1}))
    assert (status, problem["code"]) == (413, "HF075")
    assert problem["help"] == "send less, or raise limit= of the inbox"
    assert post("nobody", signed({}))[0] == 404
    assert sorted(inbox.taken()) == [0, 1]
    run_on_loop(inbox.app.aclose())


async def test_fastapi_takes_webhooks(inbox: InboxScene) -> None:
    verify = hmac_signature(SECRET, header=HEADER)

    @inbox.streams.inbox.http("shop", verify=verify, id=lambda request: request.json["id"])
    async def shop(message: Message[Any], tx: Any) -> None:
        await tx.execute(inbox.write, (message.data["n"], message.id, None))

    site = FastAPI()
    site.router.routes.extend(inbox_routes(inbox.app, "/hooks"))
    async with over_asgi(site) as client:
        answer = await client.post("/hooks/shop", **signed({"id": "evt_1", "n": 1}))
        assert answer.json()["status"] == "received"
    await inbox.app.aclose()
    assert inbox.taken() == [1]


def test_declaring_inboxes_imports_no_framework_and_no_broker_s_client() -> None:
    script = """
import sys
from holdfast import Holdfast
from holdfast_streams import JetStream, Message, add_streams, github_signature
streams = add_streams(Holdfast("sqlite:///x.db"))
@streams.inbox.http("hub", verify=github_signature("s"))
def hub(message: Message, tx): ...
@streams.inbox(JetStream("nats://a", stream="S"))
def paid(message: Message, tx): ...
found = {"nats", "redis", "flask", "django", "starlette"} & set(sys.modules)
assert not found, found
"""
    subprocess.run([sys.executable, "-c", script], check=True)
