"""Principals that are confined to one tenant: every route, core and extensions, shows and changes that tenant only."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any, Literal

import httpx
import msgspec
import pytest
import pytest_asyncio

from holdfast.admin.access import Role
from holdfast.core.lifecycle import STATES
from holdfast.extensions import rows
from holdfast.storage.id_generator import new_id
from holdfast.storage.sql_loader import dialect_statements
from holdfast.storage.store.pagination import JobQuery
from holdfast.web.openapi import ROUTES
from holdfast_context import cuts as cuts_module
from holdfast_context.confinement import ContextConfinement, cuts
from holdfast_context.cuts import Cut
from holdfast_dashboard.page_dispatch import ROUTES as PAGES
from tests.context.two_tenants import CANARY, TwoTenants
from tests.support.until import until

STREAM = "text/event-stream"
SAFE = {each for each in rows("confined") if isinstance(each, str)}
_PLACE = re.compile(r"\{(\w+)(?::\w+)?\}")
_OWN_HEADERS = ("x-request-id", "content-length", "date")
ENDLESS = ("/api/v1/live", "/api/v1/tail")

FILTERS = (
    "",
    f"key:{CANARY}-later",
    "key:*",
    f"type:{CANARY}.*",
    f"type:{CANARY}.boom state:failed",
    f"context.tenant:globex-{CANARY}",
    f"step:{CANARY}-step",
    f"waiting:{CANARY}-signal",
    f"{CANARY}",
    "id:{id}",
    "chain:{id}",
    "blocker:{id}",
    "context.nobody:x",
    "{id}",
    "{part}",
)
"""What a reader may ask for; {id} is another's, and {part} its end."""

BODIES: dict[str, list[dict[str, Any]]] = {
    "/api/v1/jobs/retry": [{"ids": ["{id}"]}, {"ids": ["{id}", "{own}"]}],
    "/api/v1/jobs/cancel": [{"ids": ["{id}"]}, {"ids": ["{id}", "{own}"]}],
    "/api/v1/jobs/run-now": [{"ids": ["{id}"]}, {"ids": ["{id}", "{own}"]}],
    "/api/v1/dead-letters/redrive": [
        {"ids": ["{id}"]},
        {"ids": ["{id}", "{own}"]},
        {"ids": ["{id}"], "rate": 1},
        {"filter": f"type:{CANARY}.*"},
        {"filter": f"context.tenant:globex-{CANARY}"},
        {"filter": "state:failed", "rate": 0.5},
    ],
    "/api/v1/dead-letters/drop": [{"ids": ["{id}"]}, {"filter": "state:failed"}],
    "/api/v1/chains": [
        {"like": "{id}"},
        {"type": "ours.done", "input": 1},
        {"type": "ours.done", "input": 1, "key": f"{CANARY}-done", "scope": "any"},
    ],
    "/api/v1/schedules": [
        {"name": "{id}", "type": "ours.done", "every": "2h"},
        {"name": "{id}", "type": f"{CANARY}.unhandled", "every": "2h"},
        {"name": "report:7", "type": "ours.done", "cron": "0 8 * * mon"},
    ],
    "/api/v1/chains/{id}/rerun": [{"from": f"{CANARY}-step"}, {"from": "ours-step"}],
}
"""Bodies of the changes that confined principals may make; {id} is another's, {own} one of theirs."""

FORMS: dict[str, list[dict[str, str]]] = {
    "/jobs/move": [
        {"move": move, **chosen}
        for move in ("retry", "cancel", "run_now")
        for chosen in ({"id": "{id}"}, {"everything": "yes", "filter": f"type:{CANARY}.*"})
    ],
    "/start": [{"like": "{id}"}, {"type": f"{CANARY}.unhandled"}],
    "/chains/{id}": [{"move": "cancel"}, {"move": "delete"}, {"move": "rerun", "step": "x"}],
    "/schedules": [
        {"move": move, "name": "{id}"} for move in ("pause", "resume", "run_now", "delete")
    ],
    "/schedule/form": [
        {"editing": editing, "name": "{id}", "type": "ours.done", "input": "1", "every": "2h"}
        for editing in ("", "{id}")
    ],
    "/groups": [{"move": "cancel", "id": "{id}"}],
    "/dead": [{"move": move, "filter": f"fingerprint:{CANARY}"} for move in ("redrive", "drop")],
}


@pytest_asyncio.fixture(params=["postgres", "sqlite"])
async def tenants(request: pytest.FixtureRequest) -> AsyncIterator[TwoTenants]:
    """Two tenants on either database."""
    url = request.getfixturevalue(f"{request.param}_url")
    made = await asyncio.to_thread(TwoTenants, url)
    yield made
    await made.served.state.site.close()
    await made.app.aclose()


def put(value: Any, **ids: str) -> Any:
    """A body with its ids."""
    if isinstance(value, str):
        return value.format(**ids)
    if isinstance(value, list):
        return [put(each, **ids) for each in value]
    return (
        {name: put(each, **ids) for name, each in value.items()}
        if isinstance(value, dict)
        else value
    )


def seen(answer: httpx.Response, *ids: str) -> tuple[int, str, dict[str, str]]:
    """An answer without what differs from request to request, and without the ids that were asked for."""
    text, headers = answer.text, dict(answer.headers)
    for each in (*ids, answer.headers.get("x-request-id", "-")):
        text = text.replace(each, "ID")
        headers = {name: value.replace(each, "ID") for name, value in headers.items()}
    text = re.sub(r'data-now="\d+"|\d{4}-\d\d-\d\dT[\d:.]+Z', "NOW", text)
    return answer.status_code, text, {k: v for k, v in headers.items() if k not in _OWN_HEADERS}


def check_answer(tenants: TwoTenants, told: str, answer: httpx.Response, asked: str = "") -> None:
    """Nothing of others is in an answer, besides what the question itself has."""
    assert answer.status_code != 500, told
    text = f"{answer.text}\n{answer.headers}"
    for each in tenants.foreign_ids:
        if each not in asked:
            assert each not in text, told
    for each in re.findall(rf"[\w.-]*{CANARY}[\w.-]*", asked):
        text = text.replace(each, "").replace(each[:40], "")
    assert CANARY not in text, f"{told}: {text}"


def requests_of(tenants: TwoTenants, path: str, body: Any) -> list[tuple[str, str, Any]]:
    """Each request with an id of others: its path, that id, and its body."""
    own = tenants.ours["again"]
    return [(_PLACE.sub(id, path), id, put(body, id=id, own=own)) for id in tenants.foreign_ids]


async def ask(client: httpx.AsyncClient, method: str, path: str, **more: Any) -> httpx.Response:
    return await client.request(method, path, **more)


async def test_what_is_not_declared_for_confined_principals_is_refused(tenants: TwoTenants) -> None:
    before = tenants.foreign_records()
    async with tenants.client(Role.DEVELOPER) as client:
        for route in ROUTES:
            if route.action is None or route.action in SAFE:
                continue
            for path, id, _ in requests_of(tenants, route.path, {}):
                answer = await ask(client, route.method, path, json={} if route.body else None)
                told = f"{route.method} {path}: {answer.status_code} {answer.text}"
                assert (answer.status_code, answer.json()["code"]) == (403, "HF090"), told
                check_answer(tenants, told, answer, id)
        for page in PAGES:
            if page.least in SAFE:
                continue
            answer = await ask(client, page.method, _PLACE.sub(CANARY, page.path))
            told = f"{page.method} {page.path}: {answer.status_code}"
            assert answer.status_code == 403 or (page.path, answer.status_code) == ("/", 303), told
            check_answer(tenants, told, answer, CANARY)
    assert tenants.foreign_records() == before


def test_every_change_that_is_declared_is_tried_below() -> None:
    for route in ROUTES:
        if route.action in SAFE and route.body is not None and "reason" not in route.path:
            fields = [each for each in route.body.__struct_fields__ if each != "reason"]
            assert not fields or route.path in BODIES, route.path
    for page in PAGES:
        if page.method == "POST" and page.least in SAFE:
            # What a form offers besides is refused when it is sent.
            assert set(page.actions) <= SAFE | {"schedule.run_now"}, page.path
            assert page.path in FORMS, page.path


async def test_lists_searches_and_counts_show_the_own_tenant_only(tenants: TwoTenants) -> None:
    lists = [
        *(each.path for each in ROUTES if each.action in SAFE and each.method == "GET"),
        *(each.path for each in PAGES if each.least in SAFE and each.method == "GET"),
    ]
    async with tenants.client(Role.DEVELOPER) as client:
        for path in lists:
            if "{" in path or path in ENDLESS:
                continue
            for each in FILTERS:
                for id in (tenants.theirs["later"], tenants.nobodys["boom"]):
                    filter = each.format(id=id, part=id[-12:])
                    given = {"filter": filter} if each else {}
                    answer = await ask(client, "GET", path, params=given)
                    check_answer(tenants, f"{path} {filter}", answer, filter)


async def test_what_others_have_counts_for_nothing(tenants: TwoTenants) -> None:
    async with tenants.client(Role.VIEWER) as client:
        for each in (f"id:{tenants.theirs['boom']}", f"type:{CANARY}.*", f"key:{CANARY}*"):
            found = await client.get("/api/v1/jobs/count", params={"filter": each})
            assert found.json() == {"count": 0, "more": False}, each


async def test_a_filter_by_the_own_tenant_finds_all_and_by_another_nothing(
    tenants: TwoTenants,
) -> None:
    own = {"filter": "context.tenant:acme"}
    other = {"filter": f"context.tenant:globex-{CANARY}"}
    async with tenants.client(Role.VIEWER) as client:
        for path in ("/api/v1/jobs", "/api/v1/chains"):
            everything = (await client.get(path)).json()
            found = await client.get(path, params=own)
            assert found.status_code == 200, found.text
            assert found.json()["items"] == everything["items"], path
            assert found.json()["items"], path
            assert (await client.get(path, params=other)).json()["items"] == [], path
        for path in ("/jobs", "/chains"):
            assert (await client.get(path, params=own)).status_code == 200
            assert (await client.get(path, params=other)).status_code == 200


def test_no_list_ends_at_a_job_of_others(tenants: TwoTenants) -> None:
    store, read = tenants.app.database.store, tenants.app.database.read
    confinement = ContextConfinement("context.tenant:acme")
    queries = [
        JobQuery(),
        JobQuery(key=f"{CANARY}-later"),
        JobQuery(blocker=tenants.theirs["later"]),
        JobQuery(blocker=tenants.nobodys["later"]),
        JobQuery(chain=tenants.theirs["later"]),
        JobQuery(context={"tenant": "acme"}),
        JobQuery(context={"tenant": f"globex-{CANARY}"}),
        *(JobQuery(states=(each,)) for each in STATES),
        JobQuery(states=("pending", "running")),
    ]
    for query in queries:
        wanted = msgspec.structs.replace(query, limit=1, types=("nothing",))
        jobs = read(confinement.cut(store.jobs.walk(wanted, look=1)))
        chains = read(confinement.cut(store.chains.walk(wanted, look=1)))
        known = (None, query.chain, *tenants.ours.values())
        assert jobs.end in known, query
        theirs = msgspec.structs.replace(wanted, types=(f"{CANARY}.done",))
        assert read(confinement.cut(store.jobs.walk(theirs, look=1))).end == jobs.end, query
        assert chains.end in known, query


@pytest.mark.parametrize("role", [Role.VIEWER, Role.DEVELOPER], ids=lambda each: each.word)
async def test_what_others_have_is_answered_as_what_does_not_exist(
    tenants: TwoTenants, role: Role
) -> None:
    routes = [each for each in ROUTES if each.action in SAFE and "{" in each.path]
    pages = [each for each in PAGES if each.least in SAFE and "{" in each.path]
    before = tenants.foreign_records()
    async with tenants.client(role) as client:
        for route in routes:
            for body in BODIES.get(route.path, [{}]):
                await compare(tenants, client, route, body)
        for page in pages:
            for form in FORMS.get(page.path, [{}]) if page.method == "POST" else [{}]:
                await compare(tenants, client, page, form, data=True)
        for id in tenants.theirs.values():
            found = await client.get("/start", params={"like": id})
            missing = new_id()
            other = await client.get("/start", params={"like": missing})
            assert seen(found, id) == seen(other, missing)
    assert tenants.foreign_records() == before


async def compare(
    tenants: TwoTenants, client: httpx.AsyncClient, route: Any, body: Any, data: bool = False
) -> None:
    """Ask for what others have and for what is not there: both are answered alike."""
    for path, id, sent in requests_of(tenants, route.path, body):
        missing = new_id()
        more = {} if route.method == "GET" else {"data" if data else "json": sent}
        found = await ask(client, route.method, path, **more)
        absent = _PLACE.sub(missing, route.path)
        other = {} if not more else {name: put(body, id=missing, own="") for name in more}
        nothing = await ask(client, route.method, absent, **other)
        told = f"{route.method} {path}"
        check_answer(tenants, told, found, f"{id} {sent}")
        assert seen(found, id) == seen(nothing, missing), told
        assert found.status_code in (403, 404), told


async def test_changes_by_ids_and_by_filter_leave_others_alone(tenants: TwoTenants) -> None:
    before = tenants.foreign_records()
    same_site = {"Sec-Fetch-Site": "same-origin"}
    async with tenants.client(Role.DEVELOPER) as client:
        for route in ROUTES:
            if route.action not in SAFE or "{" in route.path or route.method == "GET":
                continue
            for body in BODIES[route.path]:
                for path, id, sent in requests_of(tenants, route.path, body):
                    answer = await ask(client, route.method, path, json=sent)
                    check_answer(tenants, f"{path} {sent}", answer, f"{id} {sent}")
        for page in PAGES:
            if page.method != "POST" or page.least not in SAFE or "{" in page.path:
                continue
            for form in FORMS[page.path]:
                for path, id, sent in requests_of(tenants, page.path, form):
                    answer = await ask(client, "POST", path, data=sent, headers=same_site)
                    check_answer(tenants, f"{path} {sent}", answer, f"{id} {sent}")
    assert tenants.foreign_records() == before


@pytest.mark.parametrize("path", ENDLESS)
async def test_streams_tell_of_the_own_tenant_only(tenants: TwoTenants, path: str) -> None:
    broadcaster = tenants.served.state.site.broadcaster
    async with tenants.client(Role.DEVELOPER) as client:
        reading = asyncio.create_task(client.get(path))
        await until(lambda: broadcaster.subscribers)
        subscriber = next(iter(broadcaster._subscribers))
        async with tenants.app.transaction() as tx:
            await tenants.app.start(tx, f"{CANARY}.done", CANARY, context={"tenant": "globex"})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await subscriber._arrived.wait()
        await broadcaster.close()
        answer = await reading
    check_answer(tenants, path, answer)
    assert ("ours." in answer.text) == (path == "/api/v1/tail")


async def test_the_own_tenant_is_seen_and_changed(tenants: TwoTenants) -> None:
    ours = tenants.ours
    async with tenants.client(Role.DEVELOPER) as client:
        listed = (await client.get("/api/v1/jobs")).json()["items"]
        assert {each["id"] for each in listed} == set(ours.values())
        assert (await client.get("/api/v1/jobs/count")).json()["count"] == len(ours)
        for name, id in ours.items():
            for path in ("/api/v1/jobs/", "/api/v1/chains/", "/jobs/", "/chains/"):
                answer = await client.get(f"{path}{id}")
                assert answer.status_code == 200, f"{path} {name}: {answer.text}"
                check_answer(tenants, f"{path} {name}", answer)
        output = await client.get(f"/api/v1/chains/{ours['done']}/output")
        assert [each["data"] for each in output.json()["items"]] == ["ours"]
        streamed = await client.get(f"/api/v1/chains/{ours['done']}/output/stream")
        assert '"ours"' in streamed.text
        waited = await client.get(f"/api/v1/chains/{ours['done']}/wait")
        assert waited.json()["output"] == "ours"
        found = await client.get("/jobs", params={"filter": ours["later"][:13]})
        assert found.status_code == 303 or ours["later"] in found.text
        dead = (await client.get("/api/v1/dead-letters")).json()
        assert [each["count"] for each in dead["items"]] == [2]
        assert dead["redrives"] == []
        groups = (await client.get("/api/v1/groups")).json()["items"]
        told = {each["id"]: (each["ended"], each["total"]) for each in groups}
        assert told == {ours["crossed"]: (0, 0), ours["group"]: (1, 2)}
        group = (await client.get(f"/api/v1/groups/{ours['crossed']}")).json()
        assert group["total"] == 0, "the chains of others are not counted"
        group = (await client.get(f"/api/v1/groups/{ours['group']}")).json()
        assert (group["waiting"], group["completed"]) == (1, 1)
        assert ours["group"] in (await client.get("/groups")).text
        assert "2 in total" in (await client.get("/schedules")).text
        again = (await client.get(f"/api/v1/jobs/{ours['again']}")).json()
        assert "left" not in again["why"]
        moved = await client.post("/api/v1/dead-letters/redrive", json={"filter": "state:failed"})
        assert set(moved.json()["ids"]) == {ours["boom"], ours["again"]}
        retried = await client.post(f"/api/v1/jobs/{ours['later']}/run-now", json={})
        assert retried.status_code == 200, retried.text
        stopped = await client.post(f"/api/v1/jobs/{ours['crossed']}/cancel", json={})
        assert stopped.json()["moved"] == [ours["crossed"]]
        rerun = await client.post(
            f"/api/v1/chains/{ours['function']}/rerun", json={"from": "ours-step"}
        )
        assert rerun.status_code == 201, rerun.text
        refused = await client.delete(f"/api/v1/chains/{ours['later']}")
        assert refused.status_code == 409
        check_answer(tenants, "delete", refused)
        before = tenants.foreign_records()
        whole = await client.delete(f"/api/v1/chains/{ours['crossed']}?cascade=true")
        assert whole.json() == {"removed_jobs": 1}
        assert tenants.foreign_records() == before
        gone = await client.delete(f"/api/v1/chains/{ours['cancelled']}")
        assert gone.json() == {"removed_jobs": 1}


_OF_JOBS = {"id", "ids", "job", "jobs", "job_id", "chain", "chain_id", "chains", "tails", "rows"}
NOT_OF_JOBS = {
    ("limit_states", "ids"): "partitions",
    ("worker_list", "ids"): "workers",
    ("redrive_add", "id"): "the redrive",
    ("output_recent", "job"): "one of the chain, which is cut",
    ("output_said", "job"): "one of the chain, which is cut",
}


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_every_statement_that_is_given_jobs_is_cut_by_them(
    dialect: Literal["postgres", "sqlite"],
) -> None:
    texts, following = dialect_statements(dialect), vars(cuts_module)["_FOLLOWING"]
    for name, cut in cuts().items():
        if name in following or cut.filtered or cut.instead or cut.answer is not None:
            continue
        given = _OF_JOBS & set(re.findall(r"(?<!:):(\w+)", texts.get(name, "")))
        found = {each for each in given if (name, each) not in NOT_OF_JOBS}
        assert found <= {cut.ids, cut.id}, name


PARTS = [
    pytest.param(name, part, id=f"{name}-{part}")
    for name, cut in sorted(cuts().items())
    for part, value in cut._asdict().items()
    if value != Cut._field_defaults[part] and part not in ("ids", "id")
]
"""What is cut otherwise, and how."""
SECOND = {
    "blocker_dependent_chains": "these chains are looked up",
    "chain_blockers": "what is to be deleted is locked first",
    "group_open_jobs": "what is to be cancelled is locked first",
    "output_read": "the epochs are looked up first",
    "schedule_put": "names that are not the tenant's are refused first",
}
"""Cuts that nobody misses because another one stands behind or before them."""
NOT_IN_SCENE = {
    "job_crashed_before",
    "job_walk_running",
    "limit_place",
    "limit_states",
    "type_totals",
}
"""Statements for which the tenants here have nothing: jobs that run, crash, or wait for a limit."""


async def check_everything(tenants: TwoTenants) -> None:
    """Fail if anything of others shows or changes."""
    await test_what_others_have_counts_for_nothing(tenants)
    await asyncio.to_thread(test_no_list_ends_at_a_job_of_others, tenants)
    await test_lists_searches_and_counts_show_the_own_tenant_only(tenants)
    await test_the_own_tenant_is_seen_and_changed(tenants)
    await test_what_others_have_is_answered_as_what_does_not_exist(tenants, Role.DEVELOPER)
    await test_changes_by_ids_and_by_filter_leave_others_alone(tenants)


@pytest.mark.lasting
async def test_nothing_is_found_while_all_cuts_are_on(tenants: TwoTenants) -> None:
    await check_everything(tenants)


@pytest.mark.lasting
@pytest.mark.parametrize(("name", "part"), PARTS)
async def test_a_cut_that_is_switched_off_is_missed(
    tenants: TwoTenants, name: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect = tenants.app.database.store.dialect
    is_known = name in dialect_statements("postgres" if dialect == "postgresql" else "sqlite")
    if not is_known or name in NOT_IN_SCENE or (name in SECOND and part in ("columns", "instead")):
        return
    monkeypatch.setitem(cuts(), name, cuts()[name]._replace(**{part: Cut._field_defaults[part]}))
    with pytest.raises(AssertionError):
        await check_everything(tenants)
