"""Requests that few clients make: repeated parameters, bodies that do not come, versions of what has none."""

import asyncio
import math

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount
from starlette.types import Message, Receive

from holdfast.admin.access import Role
from holdfast.app import Holdfast
from holdfast.core.errors import BadRequest, RateLimited
from holdfast.settings import read_settings
from holdfast.web.app import create
from holdfast.web.middleware import RateLimit, read_body
from tests.cli.scene import Scene
from tests.support.serving import serve
from tests.support.until import PATIENCE_S
from tests.web.conftest import HOST, Api


def asking(receive: Receive) -> Request:
    """A request whose body comes so."""
    return Request({"type": "http", "method": "POST", "headers": []}, receive)


async def test_a_parameter_that_comes_twice_is_refused_and_not_chosen_from(api: Api) -> None:
    for query in ("limit=1&limit=2", "filter=state:failed&filter=state:pending"):
        answer = await api.call(Role.VIEWER, "GET", f"/api/v1/jobs?{query}")
        assert (answer.status_code, answer.json()["code"]) == (400, "HF074")


async def test_the_limit_of_bodies_holds_for_the_api_and_for_forms(app: Holdfast) -> None:
    served = create(app, settings=read_settings({}), body_limit=100)
    api = Api(served, app)
    long = {"reason": "x" * 100}
    by_program = await api.call(None, "POST", "/api/v1/types/pause-all", json=long)
    by_form = await api.call(None, "POST", "/types", data=long)
    assert (by_program.status_code, by_form.status_code) == (413, 413)
    await served.state.site.close()


async def test_a_write_to_what_has_no_version_never_finds_the_one_it_names(
    api: Api, scene: Scene
) -> None:
    for path in ("/api/v1/types/pause-all", f"/api/v1/workers/{scene.start()}/drain"):
        headers = {"If-Match": '"read before"'}
        answer = await api.call(Role.OPERATOR, "POST", path, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (412, "HF076")
    anything = {"If-Match": "*"}
    answer = await api.call(Role.OPERATOR, "POST", "/api/v1/types/pause-all", headers=anything)
    assert answer.status_code == 200


async def test_an_empty_object_is_no_body(api: Api) -> None:
    path = "/api/settings/events/outbox/run-once"
    assert (await api.call(Role.DEVELOPER, "POST", path, json={})).status_code == 200
    assert (await api.call(Role.DEVELOPER, "POST", path, json={"a": 1})).status_code == 400


@pytest.mark.parametrize(
    ("media", "status"),
    [
        (None, 200),
        ("application/json", 200),
        ("Application/JSON", 200),
        ("application/json; charset=utf-8", 200),
        ('application/json;charset="UTF-8"', 200),
        ("application/json; charset=latin-1", 415),
        ("application/merge-patch+json", 415),
        ("application/x-www-form-urlencoded", 415),
        ("text/plain", 415),
        ("json", 415),
    ],
)
async def test_only_json_in_utf_8_is_read(
    api: Api, scene: Scene, media: str | None, status: int
) -> None:
    scene.start("mail")
    headers = {} if media is None else {"Content-Type": media}
    change = {"content": b'{"concurrency": 3}', "headers": headers}
    answer = await api.call(Role.OPERATOR, "PATCH", "/api/v1/types/mail", **change)
    assert answer.status_code == status, answer.text
    if status == 415:
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.headers["Accept-Patch"] == "application/json"
        assert answer.json()["code"] == "HF078"


async def test_no_body_is_of_no_kind_and_answers_are_json_whatever_is_accepted(api: Api) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"}
    answer = await api.call(Role.OPERATOR, "PATCH", "/api/v1/types/mail", headers=headers)
    assert answer.status_code != 415
    answer = await api.call(Role.VIEWER, "GET", "/api/v1/jobs", headers=headers)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")


async def test_a_last_slash_leads_to_a_place_on_this_server_whatever_the_host_header_says(
    app: Holdfast,
) -> None:
    site = Starlette(routes=[Mount("/ops", create(app, settings=read_settings({})))])
    transport = httpx.ASGITransport(site, client=("127.0.0.1", 50_000))
    async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
        for path in ("/ops/jobs", "/ops/api/v1/jobs"):
            headers = {"Host": "evil.example", "Accept": "text/html"}
            answer = await client.get(f"{path}/?limit=1", headers=headers)
            assert (answer.status_code, answer.headers["location"]) == (307, f"{path}?limit=1")
        assert (await client.get("/ops//evil.example/")).status_code == 404


@pytest.mark.parametrize("role", [None, Role.VIEWER])
@pytest.mark.parametrize("path", ["/sign-in", "/", "/jobs", "/nowhere", "/jobs?filter=odd:1"])
async def test_the_head_of_a_page_is_that_of_the_page(
    api: Api, path: str, role: Role | None
) -> None:
    api.secret(Role.VIEWER)
    headers = {"Accept": "text/html"}
    page = await api.call(role, "GET", path, headers=headers)
    head = await api.call(role, "HEAD", path, headers=headers)
    for name in ("content-type", "location"):
        assert head.headers.get(name) == page.headers.get(name)
    assert (head.status_code, head.content) == (page.status_code, b"")


async def test_a_body_that_does_not_come_in_time_is_waited_for_no_longer() -> None:
    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("nothing ever comes")

    with pytest.raises(BadRequest, match="did not arrive within"):
        await read_body(asking(receive), within_s=0)


async def test_a_client_that_goes_before_its_body_has_come_is_no_failure_of_ours() -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    with pytest.raises(BadRequest, match="client disconnected"):
        await read_body(asking(receive))


def test_whoever_asks_too_often_is_told_when_a_permit_is_back() -> None:
    now = [0.0]
    rate = RateLimit(0.4, 1, lambda: now[0])
    rate.acquire()
    with pytest.raises(RateLimited) as refused:
        rate.acquire()
    assert refused.value.after_s == math.ceil(1 / 0.4)
    now[0] = float(refused.value.after_s)
    rate.acquire()


async def test_when_to_come_back_is_told_in_the_header(api: Api) -> None:
    path = "/api/settings/events/outbox/run-once"
    answers = [await api.call(Role.DEVELOPER, "POST", path) for _ in range(4)]
    assert int(answers[-1].headers["Retry-After"]) > 900


async def test_a_hook_that_fails_lets_nobody_in_and_tells_nothing(app: Holdfast) -> None:
    def broken(request: Request) -> None:
        raise RuntimeError("the secret of the host application")

    served = create(app, settings=read_settings({}), authenticate=broken)
    transport = httpx.ASGITransport(served, client=("127.0.0.1", 50_000))
    async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
        for path in ("/", "/nowhere", "/api/v1/jobs"):
            answer = await client.get(path, headers={"Accept": "text/html"})
            assert answer.status_code == 500
            assert "secret" not in answer.text
            assert answer.headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize("path", ["/api/v1/types/pause-all", "/livez"])
@pytest.mark.parametrize(
    "lengths",
    [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 0",
        "content-length: 4\r\ntransfer-encoding: Chunked",
    ],
)
async def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(
    app: Holdfast, path: str, lengths: str
) -> None:
    """A proxy may believe one length and this server the other: the rest would be another's request."""
    smuggled = "GET /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with serve(create(app, settings=read_settings({}))) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(address).port)
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lengths}\r\n\r\n"
        writer.write(f"{head}0\r\n\r\n{smuggled}".encode())
        async with asyncio.timeout(PATIENCE_S):
            answer = (await reader.read()).decode()
        writer.close()
    assert answer.startswith("HTTP/1.1 400")
    assert answer.count("HTTP/1.1") == 1
    assert "connection: close" in answer.lower()
    assert "HF074" in answer
