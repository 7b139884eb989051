"""A principal that is confined to a tenant has the tenant's schedules, and no others."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any, get_args

import psycopg
import pytest
import pytest_asyncio

from holdfast import Holdfast
from holdfast.admin.access import Role
from holdfast.storage.operation import Statement, Value
from holdfast.storage.sqlite.store import sqlite_statements
from holdfast_context.confinement import ContextConfinement
from holdfast_schedules import add_schedules
from tests.context.two_tenants import CANARY, TwoTenants
from tests.contract.buffers import PlanMode, measure

ALL = "/api/v1/schedules"
SAME_SITE = {"Sec-Fetch-Site": "same-origin"}
OF_A_TENANT: dict[str, Value] = {
    "context_name": "tenant",
    "context_value": "acme",
    "now": 1,
    "late_ms": None,
}
CUT_READS = (
    Statement(
        "schedule_list_within",
        {**OF_A_TENANT, "limit": 50, "after": "", "prefix": None, "type": None, "paused": None},
    ),
    Statement("schedule_near_within", {**OF_A_TENANT, "name": "report:1"}),
    Statement("schedule_totals_within", OF_A_TENANT),
)
"""What reads several schedules of one tenant."""
MANY = """
with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < 10000)
insert into holdfast.schedule (name, type, input, schedule, zone, missed, overlap, jitter_ms, priority, sealed, context,
                               next_at, created_at, changed_at)
select s.name || n, type, input, schedule, zone, missed, overlap, jitter_ms, priority, sealed,
       '{"tenant":"globex' || (n % 200) || '"}', next_at, created_at, changed_at
  from holdfast.schedule s cross join numbers where name = 'report:globex'
"""


def set_many(url: str) -> None:
    """Set three schedules of one tenant, and ten thousand of two hundred others."""
    app = Holdfast(url, open_types=True)
    schedules = add_schedules(app)
    for name, tenant in (("a", "acme"), ("m", "acme"), ("z", "acme"), ("globex", "globex")):
        with app.transaction() as tx:
            context = {"tenant": tenant}
            schedules.set(tx, f"report:{name}", "report", 1, every="1h", context=context)
    with app.transaction() as tx:
        schema = "holdfast_" if url.startswith("sqlite") else "holdfast."
        tx.execute(MANY.replace("holdfast.", schema))
    app.close()


@pytest_asyncio.fixture(params=["postgres", "sqlite"])
async def tenants(request: pytest.FixtureRequest) -> AsyncIterator[TwoTenants]:
    """Two tenants on either database."""
    url = request.getfixturevalue(f"{request.param}_url")
    made = await asyncio.to_thread(TwoTenants, url)
    yield made
    await made.served.state.site.close()
    await made.app.aclose()


async def test_the_tenants_own_schedules_are_listed_and_changed(tenants: TwoTenants) -> None:
    before = tenants.foreign_schedules()
    async with tenants.client(Role.DEVELOPER) as client:
        listed = (await client.get(ALL)).json()["items"]
        assert [each["name"] for each in listed] == ["nightly", "tenant:acme:weekly"]
        page = (await client.get("/schedules")).text
        assert "2 in total, 0 paused" in page
        one = await client.get(f"{ALL}/nightly")
        assert one.json()["context"] == {"tenant": "acme", "user": "ana"}
        assert (await client.get(f"{ALL}/nightly/slots")).json() == {"items": []}
        assert (await client.get("/schedule?name=nightly")).status_code == 200
        assert (await client.post(f"{ALL}/nightly/pause", json={})).status_code == 200
        assert (await client.get(f"{ALL}?state=paused")).json()["items"][0]["name"] == "nightly"
        assert (await client.post(f"{ALL}/nightly/resume", json={})).status_code == 200
        changed = await client.post(
            ALL, json={"name": "nightly", "type": "ours.done", "every": "3h"}
        )
        assert changed.json()["schedule"] == "every 3h"
        assert changed.json()["context"] == {"tenant": "acme", "user": "ana"}, "it keeps its own"
        assert (await client.delete(f"{ALL}/nightly")).status_code == 200
        listed = (await client.get(ALL)).json()["items"]
        assert [each["name"] for each in listed] == ["tenant:acme:weekly"]
    assert tenants.foreign_schedules() == before


async def test_a_new_schedule_has_the_tenants_context_and_a_name_of_its_own(
    tenants: TwoTenants,
) -> None:
    async with tenants.client(Role.DEVELOPER) as client:

        async def set(name: str, **more: Any) -> Any:
            body = {"name": name, "type": "ours.done", "every": "1h", **more}
            return await client.post(ALL, json=body)

        made = await set("tenant:acme:report", context={"tenant": "globex", "locale": "de"})
        assert made.json()["context"] == {"tenant": "acme", "locale": "de"}
        refusals = [
            await set(name) for name in (tenants.theirs["later"], "nobody-has-it", "acme:x")
        ]
        for each in refusals:
            assert (each.status_code, each.json()["code"]) == (403, "HF090")
        texts = {each.json()["detail"] for each in refusals}
        assert len(texts) == 1, "a name that another has is refused as any other is"
        assert "begins with tenant:acme:" in texts.pop()
        unknown = await set("tenant:acme:x", type=f"{CANARY}.don")
        assert (unknown.status_code, f"{CANARY}.done" in unknown.text) == (404, False)
        form = (await client.get("/schedule/form")).text
        assert 'value="tenant:acme:"' in form
        sent = {"name": "tenant:acme:form", "type": "ours.done", "input": "1", "every": "5m"}
        saved = await client.post("/schedule/form", data=sent, headers=SAME_SITE)
        assert saved.status_code == 303, saved.text
        assert (await client.get(f"{ALL}/tenant:acme:form")).json()["context"] == {"tenant": "acme"}


async def test_a_name_in_the_tenants_own_range_that_others_have_is_not_overwritten(
    tenants: TwoTenants,
) -> None:
    async with tenants.app.transaction() as tx:
        schedules = tenants.app.attached["schedules"]
        await schedules.set(tx, "tenant:acme:taken", "ours.done", 1, every="1h", context={})
    before = tenants.foreign_schedules()
    async with tenants.client(Role.DEVELOPER) as client:
        body = {"name": "tenant:acme:taken", "type": "ours.done", "every": "5m"}
        assert (await client.post(ALL, json=body)).status_code == 403
        assert (await client.get(f"{ALL}/tenant:acme:taken")).status_code == 404
        assert (await client.delete(f"{ALL}/tenant:acme:taken")).status_code == 404
    assert tenants.foreign_schedules() == before


async def test_viewers_see_and_operators_pause(tenants: TwoTenants) -> None:
    body = {"name": "nightly", "type": "ours.done", "every": "5m"}
    async with tenants.client(Role.VIEWER) as client:
        assert len((await client.get(ALL)).json()["items"]) == 2
        assert (await client.post(f"{ALL}/nightly/pause", json={})).status_code == 403
    async with tenants.client(Role.OPERATOR) as client:
        assert (await client.post(f"{ALL}/nightly/pause", json={})).status_code == 200
        assert (await client.post(ALL, json=body)).status_code == 403
        assert (await client.post(f"{ALL}/nightly/run-now", json={})).status_code == 403


def test_no_two_contexts_share_names() -> None:
    texts = ("context.tenant:acme", 'context.tenant:"acme:x"', 'context.tenant:"acme%3Ax"')
    prefixes = [ContextConfinement(each).prefix for each in texts]
    assert prefixes == ["tenant:acme:", "tenant:acme%3Ax:", "tenant:acme%253Ax:"]


async def test_a_schedule_is_listed_for_the_tenant_that_it_has_now(tenants: TwoTenants) -> None:
    schedules = tenants.app.attached["schedules"]
    for tenant in ("acme", "initech"):
        async with tenants.app.transaction() as tx:
            context = {"tenant": tenant, "user": "ana"}
            await schedules.set(tx, "nightly", "ours.done", "ours", every="1h", context=context)
        for value, names in (("acme", ["nightly", "tenant:acme:weekly"]), ("initech", ["nightly"])):
            async with tenants.client(Role.VIEWER, value) as client:
                listed = (await client.get(ALL)).json()["items"]
            expected = names if value == tenant else names[1:]
            assert [each["name"] for each in listed] == expected
    async with tenants.app.transaction() as tx:
        await schedules.delete(tx, "nightly")
        await schedules.delete(tx, "tenant:acme:weekly")
        dot = "." if tenants.app.database.store.dialect == "postgresql" else "_"
        find = f"select count(*) from holdfast{dot}schedule_context where name = 'user'"  # noqa: S608  one of two names
        found = await tx.execute(find)
        assert await found.fetchone() == (0,)


@pytest.mark.parametrize("mode", get_args(PlanMode))
@pytest.mark.parametrize("statement", CUT_READS, ids=lambda each: each.name)
def test_a_tenants_schedules_cost_what_it_has_on_postgresql(
    postgres_url: str, statement: Statement, mode: PlanMode
) -> None:
    set_many(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("analyze")
        cost = measure(connection, statement, mode)
    assert cost.rows == (1 if "totals" in statement.name else 3)
    assert cost.blocks <= 30, cost.plan


@pytest.mark.parametrize("statement", CUT_READS, ids=lambda each: each.name)
def test_a_tenants_schedules_cost_what_it_has_on_sqlite(
    sqlite_url: str, statement: Statement
) -> None:
    set_many(sqlite_url)
    thousands: list[None] = []
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        connection.set_progress_handler(lambda: thousands.append(None), 1000)
        query = sqlite_statements()[statement.name]
        found = connection.execute(query, statement.params).fetchall()
    assert len(found) == (1 if "totals" in statement.name else 3)
    assert len(thousands) <= 1, "steps of SQLite's machine"
