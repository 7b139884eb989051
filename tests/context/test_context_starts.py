"""Starts that say their context over HTTP and on the command line, and the names that an application declares."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from click.testing import CliRunner

from holdfast import Holdfast, Job
from holdfast.admin.access import Caller, Principal, Role, new_secret, new_token
from holdfast.admin.service import Service
from holdfast.cli.main import cli
from holdfast.core.errors import ConfinementUnsupported, ContextInvalid, Refused
from holdfast.extensions import modules_of
from holdfast.settings import read_settings
from holdfast.web.app import create
from holdfast_context import add_context, only
from holdfast_context.errors import ConfinementInvalid

HOST = "http://127.0.0.1"
DEVELOPER = Caller(Principal("ana", Role.DEVELOPER))


@pytest_asyncio.fixture(params=["postgres", "sqlite"])
async def app(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Holdfast]:
    """An application that declares what its context may have."""
    url = request.getfixturevalue(f"{request.param}_url")
    monkeypatch.setenv("HOLDFAST_URL", url)
    app = Holdfast(url)
    add_context(app, capture=lambda: {"locale": "de"}, names=("tenant", "locale"))

    @app.job("report.make")
    async def make(job: Job[Any]) -> None: ...

    yield app
    await app.aclose()


async def post(app: Holdfast, body: Any, only: str = "") -> httpx.Response:
    """Start a job over HTTP, by a token that may be confined."""
    secret = new_secret()
    token = new_token(Principal("ana", Role.DEVELOPER, only), secret)
    app.database.run(app.database.store.tokens.create(token))
    served = create(app, settings=read_settings({}))
    headers = {"Authorization": f"Bearer {secret}"}
    transport = httpx.ASGITransport(served)
    async with httpx.AsyncClient(transport=transport, base_url=HOST, headers=headers) as client:
        answer = await client.post("/api/v1/chains", json={"type": "report.make", **body})
    await served.state.site.close()
    return answer


def contexts(app: Holdfast) -> list[dict[str, str]]:
    return [each.context for each in app.jobs.list().items]


async def test_a_start_over_http_says_its_context(app: Holdfast) -> None:
    assert (await post(app, {"context": {"tenant": "acme"}})).status_code == 201
    assert (await post(app, {})).status_code == 201
    assert contexts(app) == [{"locale": "de"}, {"tenant": "acme"}]


async def test_names_that_are_not_declared_are_refused(app: Holdfast) -> None:
    answer = await post(app, {"context": {"tennant": "acme"}})
    assert (answer.status_code, answer.json()["code"]) == (400, "HF201")
    assert "tenant" in answer.json()["help"]
    async with app.transaction() as tx:
        with pytest.raises(ContextInvalid, match="no user"):
            await app.start(tx, "report.make", context={"user": "ana"})
        with pytest.raises(ContextInvalid, match="no user"):
            await app.publish(tx, "made", context={"user": "ana"})
    assert contexts(app) == []


async def test_what_a_confined_principal_starts_is_its_tenants(app: Holdfast) -> None:
    acme = only("tenant", "acme")
    for given in ({}, {"context": {"locale": "fr"}}, {"context": {"tenant": "globex"}}):
        assert (await post(app, given, acme)).status_code == 201
    assert contexts(app) == [
        {"tenant": "acme"},
        {"locale": "fr", "tenant": "acme"},
        {"tenant": "acme"},
    ]
    for option in ({"key": "a"}, {"key": "a", "debounce": "1m"}):
        refused = await post(app, option, acme)
        assert (refused.status_code, refused.json()["code"]) == (403, "HF090")


def test_the_command_line_says_a_context(app: Holdfast) -> None:
    run = CliRunner().invoke
    base = ["jobs", "start", "report.make", "--new-type", "-o", "json"]
    made = run(cli, [*base, "--context", "tenant=acme", "--context", "locale=fr"])
    assert made.exit_code == 0, made.output
    assert contexts(app) == [{"locale": "fr", "tenant": "acme"}]
    wrong = run(cli, [*base, "--context", "tenant"])
    assert wrong.exit_code != 0
    assert "HF201" in wrong.output


def test_the_command_line_confines_a_token(app: Holdfast) -> None:
    given = ["token", "create", "--role", "operator", "--name", "ops", "-o", "json"]
    made = CliRunner().invoke(cli, [*given, "--only", 'context.tenant:"two words"'])
    assert made.exit_code == 0, made.output
    row = json.loads(made.stdout)
    assert row["role"] == 'operator context.tenant:"two words"'
    wrong = CliRunner().invoke(cli, [*given, "--only", "state:failed"])
    assert wrong.exit_code != 0
    assert "HF215" in wrong.output


@pytest.mark.parametrize(
    "text",
    [
        "state:failed",
        "context.tenant:a,b",
        "context.tenant:a context.tenant:b",
        "acme",
        "context.user:a",
    ],
)
async def test_a_token_is_confined_to_one_declared_value(app: Holdfast, text: str) -> None:
    tokens = Service(app, read_settings({})).tokens
    with pytest.raises(ConfinementInvalid):
        await tokens.create(DEVELOPER, Principal("ops", Role.OPERATOR, text))
    assert await tokens.list(DEVELOPER) == []


async def test_a_token_knows_what_it_is_confined_to(app: Holdfast) -> None:
    tokens = Service(app, read_settings({})).tokens
    wanted = only("tenant", 'a "b" c')
    made = await tokens.create(DEVELOPER, Principal("ops", Role.OPERATOR, wanted))
    assert await tokens.principal(made.secret) == Principal("ops", Role.OPERATOR, wanted)


async def test_without_what_confines_everything_is_refused(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden: dict[str, list[str]] = {"confinement": []}
    monkeypatch.setattr(
        "holdfast.admin.access.modules_of", lambda name: hidden.get(name, modules_of(name))
    )
    service = Service(app, read_settings({}))
    confined = Caller(Principal("ops", Role.DEVELOPER, only("tenant", "acme")))
    with pytest.raises(ConfinementUnsupported):
        await service.jobs.page(confined, "", 10, None)
    with pytest.raises(ConfinementUnsupported):
        await service.tokens.create(DEVELOPER, Principal("ops", Role.VIEWER, "context.tenant:acme"))


async def test_what_a_confined_principal_does_is_audited_with_its_limits(app: Holdfast) -> None:
    service = Service(app, read_settings({}))
    confined = Caller(Principal("ops", Role.DEVELOPER, only("tenant", "acme")))
    chain = await service.chains.start(confined, "report.make")
    await service.chains.cancel(confined, str(chain.id))
    entries = (await service.audit.page(DEVELOPER)).items
    assert {each["role"] for each in entries} == {"developer context.tenant:acme"}
    with pytest.raises(Refused, match="covers more"):
        await service.audit.page(confined)
