"""Who may come in: the matrix of all routes and roles, tokens, cookies, hooks, this machine, other sites."""

import re
from typing import Any

import pytest
from starlette.requests import Request

from holdfast.admin.access import POLICY, Principal, Role, new_secret
from holdfast.app import Holdfast
from holdfast.core.errors import UnsafeBind
from holdfast.settings import read_settings
from holdfast.storage.id_generator import new_id
from holdfast.web.app import create
from holdfast.web.authentication import COOKIE, check_bind
from holdfast.web.openapi import ROUTES
from holdfast.web.route import Route
from tests.cli.scene import Scene
from tests.web.conftest import Api

STATS = "/api/settings/events/outbox/stats"
STREAMS = {route.path for route in ROUTES if route.media == "text/event-stream"}


FOREIGN_HOSTS = (
    "",
    "x@127.0.0.1",
    "127.0.0.1@evil.example",
    "x:y@localhost:80",
    "127.0.0.1.",
    "localhost.",
    "127.0.0.1:",
    "127.0.0.1:x",
    "127.0.0.1:80:80",
    "127.0.0.1:123456",
    "127.0.0.1/evil.example",
    "127.0.0.1?",
    "127.0.0.1#evil.example",
    "127.0.0.1 ",
    "127.1",
    "2130706433",
    "0x7f000001",
    "::1",
    "[::1",
    "::1]",
    "[::1]x",
    "[::1%25lo]",
    "[127.0.0.1]",
    "[localhost]",
    "[[::1]]",
)
"""Names that are not written as a browser on this machine writes them, however they are read."""


def path_of(route: Route) -> str:
    """A path of the route; nothing is under the ids in it."""
    return re.sub(r"\{[^}]+\}", lambda _: new_id(), route.path)


def body_of(route: Route) -> dict[str, Any]:
    return {} if route.body is None else {"json": {}}


@pytest.mark.parametrize("role", [None, "bad", *Role], ids=lambda each: getattr(each, "word", each))
async def test_the_matrix_of_routes_and_principals_holds(api: Api, role: Role | str | None) -> None:
    api.secret(Role.VIEWER)
    for route in ROUTES:
        if isinstance(role, str):
            headers = {"Authorization": f"Bearer {new_secret()}"}
            answer = await api.call(None, route.method, path_of(route), headers=headers)
        elif route.path in STREAMS and role is not None and role >= Role.VIEWER:
            continue
        else:
            answer = await api.call(role, route.method, path_of(route), **body_of(route))
        told = f"{route.method} {route.path}: {answer.status_code}"
        if route.action is None:
            assert answer.status_code not in (401, 403), told
        elif role is None or isinstance(role, str):
            assert answer.status_code == 401, told
            assert answer.headers["WWW-Authenticate"].startswith("Bearer"), told
        elif role < POLICY[route.action]:
            assert answer.status_code == 403, told
            assert answer.json()["code"] == "HF090", told
        else:
            assert answer.status_code not in (401, 403), told
        assert answer.status_code not in (500, 502), told


async def test_what_the_seed_promises_of_statuses_holds_word_for_word(api: Api) -> None:
    api.secret(Role.USER)
    for method, path in (("GET", STATS), ("POST", STATS.replace("stats", "run-once"))):
        assert (await api.call(None, method, path)).status_code == 401
        for role in (Role.USER, Role.VIEWER, Role.OPERATOR):
            assert (await api.call(role, method, path)).status_code == 403
        assert (await api.call(Role.DEVELOPER, method, path)).status_code == 200


async def test_the_outbox_asks_for_a_token_before_the_first_one_is_made(api: Api) -> None:
    for method, path in (("GET", STATS), ("POST", STATS.replace("stats", "run-once"))):
        assert (await api.call(None, method, path)).status_code == 401


async def test_this_machine_may_do_everything_else_until_the_first_token_is_made(api: Api) -> None:
    assert (await api.call(None, "GET", "/api/v1/overview")).status_code == 200
    api.secret(Role.VIEWER)
    assert (await api.call(None, "GET", "/api/v1/overview")).status_code == 401


@pytest.mark.parametrize(
    ("peer", "headers"),
    [
        ("192.0.2.7", {}),
        ("127.0.0.1", {"X-Forwarded-For": "192.0.2.7"}),
        ("127.0.0.1", {"Forwarded": "for=192.0.2.7"}),
        ("127.0.0.1", {"X-Forwarded-Host": "jobs.example"}),
        ("127.0.0.1", {"X-Real-IP": "192.0.2.7"}),
        ("127.0.0.1", {"Via": "1.1 proxy"}),
        ("127.0.0.1", {"Host": "evil.example"}),
        *(("127.0.0.1", {"Host": each}) for each in FOREIGN_HOSTS),
    ],
)
async def test_only_this_machine_itself_comes_in_without_a_token(
    api: Api, peer: str, headers: dict[str, str]
) -> None:
    async with api.client(peer=peer) as client:
        answer = await client.get("/api/v1/overview", headers=headers)
        assert answer.status_code == 401


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8080",
        "127.8.9.1:1",
        "localhost",
        "LocalHost:65535",
        "[::1]",
        "[::1]:80",
    ],
)
async def test_this_machines_own_names_are_local_with_and_without_a_port(
    api: Api, host: str
) -> None:
    answer = await api.call(None, "GET", "/api/v1/overview", headers={"Host": host})
    assert answer.status_code == 200


async def test_two_names_of_the_host_are_not_local(api: Api) -> None:
    headers = [("Host", "127.0.0.1"), ("Host", "evil.example")]
    answer = await api.call(None, "GET", "/api/v1/overview", headers=headers)
    assert answer.status_code == 401


@pytest.mark.parametrize("secret", ["", "theirs", new_secret()], ids=["none", "theirs", "new"])
async def test_a_bearer_that_is_no_token_is_refused_even_from_this_machine(
    api: Api, secret: str
) -> None:
    headers = {"Authorization": f"Bearer {secret}"}
    assert (await api.call(None, "GET", "/api/v1/overview", headers=headers)).status_code == 401


async def test_a_cookie_that_is_no_token_lets_nobody_in(api: Api) -> None:
    api.secret(Role.VIEWER)
    headers = {"Cookie": f"{COOKIE}={new_secret()}"}
    assert (await api.call(None, "GET", "/api/v1/overview", headers=headers)).status_code == 401


async def test_a_revoked_token_is_refused_at_once(api: Api, app: Holdfast) -> None:
    assert (await api.call(Role.VIEWER, "GET", "/api/v1/jobs")).status_code == 200
    (token,) = app.database.read(app.database.store.tokens.page(10))
    app.database.run(app.database.store.tokens.revoke(token.id))
    assert (await api.call(Role.VIEWER, "GET", "/api/v1/jobs")).status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 409),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://127.0.0.1"}, 409),
        ({"Origin": "http://evil.example"}, 403),
        ({}, 403),
    ],
)
async def test_a_cookie_changes_things_from_our_own_pages_only(
    api: Api, scene: Scene, headers: dict[str, str], status: int
) -> None:
    cookie = {"Cookie": f"{COOKIE}={api.secret(Role.OPERATOR)}"}
    path = f"/api/v1/jobs/{scene.start()}/retry"
    answer = await api.call(None, "POST", path, headers=cookie | headers)
    assert answer.status_code == status
    assert (await api.call(None, "GET", "/api/v1/jobs", headers=cookie)).status_code == 200


async def test_a_token_changes_things_from_any_page(api: Api, scene: Scene) -> None:
    path = f"/api/v1/jobs/{scene.start()}/retry"
    other = {"Sec-Fetch-Site": "cross-site", "Origin": "http://other.example"}
    assert (await api.call(Role.OPERATOR, "POST", path, headers=other)).status_code == 409


async def test_another_site_cannot_use_this_machines_trust(api: Api, scene: Scene) -> None:
    path = f"/api/v1/jobs/{scene.start()}/retry"
    evil = {"Sec-Fetch-Site": "cross-site"}
    assert (await api.call(None, "POST", path, headers=evil)).status_code == 403
    assert (await api.call(None, "POST", path)).status_code == 409


async def test_a_host_application_may_say_who_asks(app: Holdfast) -> None:
    async def hook(request: Request) -> Principal | None:
        name = request.headers.get("x-user")
        return None if name is None else Principal(name, Role.OPERATOR)

    api = Api(create(app, settings=read_settings({}), authenticate=hook), app)
    assert (await api.call(None, "GET", "/api/v1/jobs")).status_code == 401
    known = {"X-User": "ana"}
    assert (await api.call(None, "GET", "/api/v1/jobs", headers=known)).status_code == 200
    assert (await api.call(None, "GET", STATS, headers=known)).status_code == 403
    assert (await api.call(Role.DEVELOPER, "GET", STATS)).status_code == 200


async def test_a_bearer_that_is_not_ours_is_left_to_the_host_application(app: Holdfast) -> None:
    def hook(request: Request) -> Principal | None:
        is_known = request.headers.get("authorization") is not None
        return Principal("ana", Role.OPERATOR) if is_known else None

    api = Api(create(app, settings=read_settings({}), authenticate=hook), app)
    for secret, status in (("theirs", 200), (new_secret(), 401)):
        headers = {"Authorization": f"Bearer {secret}"}
        answer = await api.call(None, "GET", "/api/v1/jobs", headers=headers)
        assert answer.status_code == status


async def test_a_cookie_that_is_no_token_keeps_no_user_of_the_host_application_out(
    app: Holdfast,
) -> None:
    ana = Principal("ana", Role.OPERATOR)
    api = Api(create(app, settings=read_settings({}), authenticate=lambda _: ana), app)
    headers = {"Cookie": f"{COOKIE}=stale"}
    assert (await api.call(None, "GET", "/api/v1/jobs", headers=headers)).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.3.2.1"])
def test_this_machines_own_address_needs_no_access_control(host: str) -> None:
    check_bind(host, has_tokens=False, has_hook=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_an_address_that_others_reach_needs_tokens_or_a_hook(host: str) -> None:
    with pytest.raises(UnsafeBind, match="no token exists") as refused:
        check_bind(host, has_tokens=False, has_hook=False)
    assert "holdfast token create" in refused.value.help
    check_bind(host, has_tokens=True, has_hook=False)
    check_bind(host, has_tokens=False, has_hook=True)
