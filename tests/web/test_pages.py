"""Pages: who may see and use them, signing in, and what foreign texts become on them."""

import re
from html import unescape
from typing import Any
from urllib.parse import quote, unquote_plus

import pytest

from holdfast.admin import chains as chain_admin
from holdfast.admin.access import POLICY, Role
from holdfast.app import Holdfast
from holdfast.settings import read_settings
from holdfast.web.app import create
from holdfast.web.authentication import COOKIE
from holdfast_dashboard import lists
from holdfast_dashboard.page_dispatch import ROUTES, PageRoute
from tests.cli.scene import Scene
from tests.web.conftest import Api

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
PLAIN = [each for each in ROUTES if each.method == "GET" and "{" not in each.path]
SAME_SITE = {"Sec-Fetch-Site": "same-origin"}


def target_of(page: PageRoute, id: str) -> str:
    return re.sub(r"\{[^}]+\}", id, page.path)


def form_of(page: PageRoute, id: str) -> dict[str, Any]:
    """What a form of this page would send."""
    if page.method == "GET":
        return {}
    move = page.actions[0].partition(".")[2]
    return {"data": {"move": move, "id": id, "name": "mail.send", "filter": "type:mail.send"}}


@pytest.mark.parametrize("role", [None, *Role], ids=lambda each: getattr(each, "word", each))
async def test_the_matrix_of_pages_and_roles_holds(
    api: Api, scene: Scene, role: Role | None
) -> None:
    api.secret(Role.VIEWER)
    id = scene.failed()
    for page in ROUTES:
        answer = await api.call(role, page.method, target_of(page, id), **form_of(page, id))
        told = f"{page.method} {page.path}: {answer.status_code}"
        if role is None:
            assert answer.status_code == (303 if page.method == "GET" else 401), told
        elif role < POLICY[page.least]:
            assert answer.status_code == 403, told
        else:
            assert answer.status_code not in (401, 403, 500), told


async def test_signing_in_with_a_token_gives_a_cookie_that_scripts_cannot_read(api: Api) -> None:
    secret = api.secret(Role.VIEWER)
    async with api.client() as client:
        wrong = await client.post("/sign-in", data={"token": "hf_wrong"}, headers=SAME_SITE)
        assert "set-cookie" not in wrong.headers
        right = await client.post("/sign-in", data={"token": secret}, headers=SAME_SITE)
        cookie = right.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}=")
        assert "httponly" in cookie.lower()
        assert re.search("samesite=(strict|lax)", cookie.lower())
        assert (await client.get("/")).status_code == 200


async def test_a_revoked_token_can_still_sign_out_and_another_site_cannot_do_it(api: Api) -> None:
    secret = api.secret(Role.VIEWER)
    async with api.client() as client:
        await client.post("/sign-in", data={"token": secret}, headers=SAME_SITE)
        (token,) = api.app.database.read(api.app.database.store.tokens.page(1))
        api.app.database.run(api.app.database.store.tokens.revoke(token.id))
        foreign = await client.post("/sign-out", headers={"Sec-Fetch-Site": "cross-site"})
        assert (foreign.status_code, COOKIE in client.cookies) == (403, True)
        gone = await client.post("/sign-out", headers=SAME_SITE)
        assert (gone.status_code, gone.headers["location"]) == (303, "/sign-in")
        assert COOKIE not in client.cookies


async def test_behind_a_proxy_that_encrypts_the_cookie_is_never_sent_in_the_clear(api: Api) -> None:
    data = {"token": api.secret(Role.VIEWER)}
    for proto, secure in (("https", True), ("http", False)):
        headers = {**SAME_SITE, "X-Forwarded-Proto": proto}
        answer = await api.call(None, "POST", "/sign-in", data=data, headers=headers)
        assert ("secure" in answer.headers["set-cookie"].lower()) is secure


async def test_a_form_says_why_an_input_is_written_as_json(api: Api, scene: Scene) -> None:
    scene.start("mail.send")
    for type, why in (
        ("echo", "as JSON: the type&#39;s input has no named fields"),
        ("mail.send", "as JSON: this process doesn&#39;t know the type<"),
    ):
        page = (await api.call(Role.DEVELOPER, "GET", f"/start?type={type}")).text
        assert why in page
    asked = (await api.call(Role.DEVELOPER, "GET", "/start?type=echo&as=json")).text
    assert "has no named fields" in asked


async def test_a_long_chain_is_shown_from_its_end(
    api: Api, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_admin, "MAX_JOBS", 1)
    job = scene.running("mail.send")
    last = scene.continued(job, "mail.sent")
    tree = (await api.call(Role.VIEWER, "GET", f"/chains/{job.id}?view=tree")).text
    assert f'?filter=chain:{job.id}">1 earlier job</a>' in tree
    assert (f"/jobs/{job.id}" in tree, f"/jobs/{last}" in tree) == (False, True)
    for view in ("graph", "time"):
        assert (
            "Without 1 earlier job."
            in (await api.call(Role.VIEWER, "GET", f"/chains/{job.id}?view={view}")).text
        )
    shown = (await api.call(Role.VIEWER, "GET", f"/api/v1/chains/{job.id}")).json()
    assert shown["tree"]["earlier_jobs"] == 1


async def test_the_leases_of_a_worker_are_those_that_have_not_ended(api: Api, scene: Scene) -> None:
    scene.worker("mail.send")
    for _ in range(3):
        scene.start("mail.send")
    held = scene.claim("mail.send")
    for left in ("3", "2"):
        page = (await api.call(Role.VIEWER, "GET", "/workers")).text
        assert re.findall(r'data-label="Leases"><a [^>]+>(\d+)</a>', page) == [left]
        scene.finish(held.pop(), "complete")


async def test_a_page_of_workers_that_is_cut_says_so(
    api: Api, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for id in ("w-1", "w-2", "w-3"):
        scene.worker("mail.send", id=id)
    for shown, said in ((3, False), (2, True)):
        monkeypatch.setattr("holdfast_dashboard.lists.SHOWN_WORKERS", shown)
        page = (await api.call(Role.VIEWER, "GET", "/workers?all=yes")).text
        assert page.count('<tr data-key="w-') == shown
        assert ("holdfast workers list --all --limit 1000" in page) == said


async def test_while_the_database_is_away_people_get_a_page_that_says_so(api: Api) -> None:
    api.app.bind("sqlite:////nowhere/at/all.db")
    for accept, media in (("text/html", "text/html"), ("*/*", "application/problem+json")):
        answer = await api.call(None, "GET", "/jobs", headers={"Accept": accept})
        assert answer.status_code == 503
        assert answer.headers["Content-Type"].startswith(media)
        assert "database" in answer.text
    assert "nowhere" not in (await api.call(None, "GET", "/", headers={"Accept": "text/html"})).text


async def test_a_tail_of_what_cannot_be_understood_says_so(api: Api) -> None:
    answer = await api.call(Role.VIEWER, "GET", "/tail?filter=stat:failed")
    assert answer.status_code == 400
    assert "did you mean state?" in answer.text
    assert 'data-stream="/api/v1/tail' not in answer.text


@pytest.mark.parametrize("back", ["//evil.example/", "https://evil.example/", "/\\evil.example"])
async def test_signing_in_leads_to_our_own_pages_only(api: Api, back: str) -> None:
    secret = api.secret(Role.VIEWER)
    async with api.client() as client:
        form = {"token": secret, "back": back}
        answer = await client.post(f"/sign-in?back={quote(back)}", data=form, headers=SAME_SITE)
        assert "evil" not in answer.headers.get("location", "")


async def test_foreign_texts_are_escaped_on_every_page(api: Api, scene: Scene) -> None:
    dead = scene.failed(f"ValueError: {HOSTILE}", type="mail.send")
    scene.worker(HOSTILE.replace('"', "'"), id="w-<b>")
    id = scene.start(HOSTILE, key=HOSTILE, input='{"x":"</script><script>alert(1)</script>"}')
    for path in [
        *(page.path for page in PLAIN),
        *(f"/{noun}/{each}" for noun in ("jobs", "chains") for each in (dead, id)),
        f"/jobs?filter={quote(HOSTILE)}",
        f"/audit?actor={quote(HOSTILE)}",
        f"/tail?filter={quote(HOSTILE)}",
        "/nope",
    ]:
        answer = await api.call(Role.DEVELOPER, "GET", path)
        assert "<script>alert" not in answer.text, path
        assert "<img src=x" not in answer.text, path
        assert "w-<b>" not in answer.text, path
        assert " style=" not in answer.text, f"{path}: the policy forbids inline styles"


async def test_choosing_a_state_keeps_the_rest_of_the_filter_as_it_was(
    api: Api, scene: Scene
) -> None:
    filter = 'error:"no  state:known here" state:failed'
    page = (await api.call(Role.VIEWER, "GET", f"/jobs?filter={quote(filter)}")).text
    (pending,) = re.findall(r'href="([^"]*)">Pending<', page)
    assert unquote_plus(unescape(pending)).endswith('state:pending error:"no  state:known here"')


async def test_a_search_that_stopped_says_so_first(
    api: Api, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.start("rare")
    for _ in range(5):
        scene.start("common")
    monkeypatch.setattr("holdfast.client.pagination.LOOK", 4)
    page = (await api.call(Role.VIEWER, "GET", "/jobs?filter=type:rare")).text
    assert "None among the newest 10\u202f000 jobs" in page
    assert "Search older jobs" in page
    assert "No job matches" not in page


async def test_thousands_of_types_are_shown_page_by_page_and_found_by_a_part_of_the_name(
    api: Api, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "PAGE_LENGTH", 2)
    for name in ("mail.a", "mail.b", "mail.c", "order.a"):
        scene.start(name)
    seen = []
    path: str | None = "/types?name=mail"
    while path:
        page = (await api.call(Role.VIEWER, "GET", path)).text
        seen.append(re.findall(r'data-key="([^"]*)"', page))
        further = re.search(r'rel="next" href="([^"]*)"', page)
        path = unescape(further[1]) if further else None
    assert seen == [["mail.a", "mail.b"], ["mail.c"]]
    nothing = await api.call(Role.VIEWER, "GET", "/types?name=nothing")
    assert "No type matches this name." in nothing.text


async def test_a_job_links_to_its_trace_where_an_address_is_set(
    app: Holdfast, scene: Scene
) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    ids = [scene.start(trace=each) for each in (trace, "strange")]
    template = "https://traces.example/{trace_id}?span={span_id}"
    for environ, linked in (({"HOLDFAST_TRACE_URL": template}, [True, False]), ({}, [False] * 2)):
        api = Api(create(app, settings=read_settings(environ)), app)
        pages = [(await api.call(Role.VIEWER, "GET", f"/jobs/{id}")).text for id in ids]
        link = (
            'href="https://traces.example/0af7651916cd43dd8448eb211c80319c?span=b7ad6b7169203331"'
        )
        assert [link in each for each in pages] == linked
        await api.served.state.site.close()


async def test_a_countdown_is_not_read_out_second_by_second(api: Api, scene: Scene) -> None:
    page = await api.call(Role.VIEWER, "GET", f"/jobs/{scene.running().id}")
    (sentence,) = re.findall(r'<p class="sentence.*?</p>', page.text)
    assert 'aria-live="polite"' in sentence
    assert '<time aria-live="off" data-until=' in sentence


async def test_a_tail_without_scripts_says_where_to_look_instead(api: Api) -> None:
    page = await api.call(Role.VIEWER, "GET", "/tail")
    assert "<noscript>" in page.text


async def test_a_redrive_of_more_than_one_command_takes_says_so_on_the_page(
    api: Api, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.admin.jobs.MAX_AT_ONCE", 3)
    for _ in range(5):
        scene.failed()
    form = {"move": "redrive", "filter": "type:mail.send", "back": "/dead"}
    said = []
    for _ in range(2):
        answer = await api.call(Role.OPERATOR, "POST", "/dead", data=form)
        page = await api.call(Role.OPERATOR, "GET", answer.headers["location"])
        said.append(re.sub(r"\s+", " ", page.text))
    assert "3 jobs re-queued; more match, run it again" in said[0]
    assert "2 jobs re-queued</p>" in said[1]


async def test_an_unknown_address_is_a_page_for_people_and_a_problem_for_programs(api: Api) -> None:
    html = {"Accept": "text/html,application/xhtml+xml"}
    page = await api.call(Role.VIEWER, "GET", "/nowhere", headers=html)
    assert page.status_code == 404
    assert page.headers["content-type"].startswith("text/html")
    assert "GET /nowhere is not served here" in page.text
    assert "HF077" in page.text
    for path, headers in (("/api/v1/nowhere", html), ("/nowhere", {})):
        answer = await api.call(Role.VIEWER, "GET", path, headers=headers)
        assert answer.status_code == 404
        assert answer.json()["code"] == "HF077"
    stranger = await api.call(None, "GET", "/nowhere", headers=html)
    assert stranger.status_code == 303


async def test_a_method_that_is_not_served_is_told_which_are(api: Api) -> None:
    answer = await api.call(Role.DEVELOPER, "GET", "/api/settings/events/outbox/run-once")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["help"] == "use POST"


async def test_a_form_that_is_too_large_is_refused(api: Api) -> None:
    answer = await api.call(Role.OPERATOR, "POST", "/jobs/move", content=b"id=" + b"x" * 1_100_000)
    assert answer.status_code == 413


async def test_a_number_without_end_is_refused_beside_what_was_typed(api: Api) -> None:
    form = {"type": "echo", "as": "json", "in.": "{}", "priority": "9" * 5_000}
    answer = await api.call(Role.DEVELOPER, "POST", "/start", data=form)
    assert answer.status_code == 400
    assert "is not a whole number" in answer.text


async def test_a_form_with_its_question_is_asked_and_not_obeyed(api: Api, scene: Scene) -> None:
    id = scene.start()
    form = {
        "move": "cancel",
        "id": id,
        "back": "//evil.example",
        "ask:cancel": f"Cancel {{these}} {HOSTILE}?",
        "more:cancel": HOSTILE,
    }
    page = await api.call(Role.OPERATOR, "POST", "/jobs/move", data=form)
    assert page.status_code == 200
    assert f"Cancel 1 job {HOSTILE}?" in unescape(page.text)
    assert HOSTILE not in page.text
    assert "evil.example" not in re.findall('href="([^"]*)"', page.text)
    assert scene.state(id) == "pending"
    kept = dict(re.findall('type="hidden" name="([^"]+)" value="([^"]*)"', page.text))
    assert kept == {"move": "cancel", "id": id, "back": "//evil.example"}
    done = await api.call(Role.OPERATOR, "POST", "/jobs/move", data=kept | {"reason": "why not"})
    assert (done.status_code, scene.state(id)) == (303, "cancelled")
    assert scene.deeds() == [("job.cancel", f"job {id}", "why not")]
