"""The dashboard works wherever a host application mounts it, and its links find what they promise."""

import re
from html import unescape

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast.app import Holdfast
from holdfast.settings import read_settings
from holdfast.web.app import create
from tests.cli.scene import Scene

ODD = 'mail "now": <all>, or later'


def client(served: Starlette) -> httpx.AsyncClient:
    """Somebody at this machine."""
    transport = httpx.ASGITransport(served, client=("127.0.0.1", 50_000))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


def links(page: str) -> set[str]:
    """Every address that a page names."""
    found = re.findall(r'(?:href|src|action|data-stream)="([^"]*)"', page)
    return {unescape(each) for each in found if not each.startswith("#")}


async def test_without_a_dashboard_the_api_works_and_says_how_to_get_one(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.app.modules_of", lambda table: [])
    async with client(create(app, settings=read_settings({}))) as visitor:
        front = await visitor.get("/")
        assert (front.status_code, front.text.count("\n")) == (200, 1)
        assert 'pip install "holdfast-jobs[web]"' in front.text
        assert (await visitor.get("/api/v1/jobs")).json()["items"] == []
        missing = await visitor.get("/jobs", headers={"Accept": "text/html"})
        assert (missing.status_code, missing.json()["code"]) == (404, "HF077")


async def test_the_help_of_a_mounted_api_names_what_is_there(app: Holdfast) -> None:
    site = Starlette(routes=[Mount("/holdfast", create(app, settings=read_settings({})))])
    async with client(site) as visitor:
        missing = (await visitor.get("/holdfast/api/v1/nothing")).json()
        named = missing["help"].rpartition(" ")[2]
        assert (missing["code"], named) == ("HF077", "/holdfast/api/v1/openapi.json")
        assert (await visitor.get(named)).status_code == 200


async def test_every_link_of_a_mounted_dashboard_stays_below_its_path(
    app: Holdfast, scene: Scene
) -> None:
    id = scene.failed()
    site = Starlette(routes=[Mount("/ops/holdfast", create(app, settings=read_settings({})))])
    async with client(site) as visitor:
        for path in ("/", "/jobs", f"/jobs/{id}", f"/chains/{id}", "/dead", "/sign-in"):
            answer = await visitor.get(f"/ops/holdfast{path}")
            assert answer.status_code == 200
            below = {each for each in links(answer.text) if not each.startswith("?")}
            assert below
            assert all(each.startswith("/ops/holdfast/") for each in below), below
        style = await visitor.get("/ops/holdfast/static/base.css")
        assert style.status_code == 200


async def test_a_page_names_files_by_their_version_and_browsers_keep_those(app: Holdfast) -> None:
    site = Starlette(routes=[Mount("/ops", create(app, settings=read_settings({})))])
    async with client(site) as visitor:
        page = (await visitor.get("/ops/jobs")).text
        (script,) = re.findall(r'src="(/ops/static/[^"]+)"', page)
        kept = await visitor.get(script)
        assert kept.headers["Cache-Control"] == "max-age=31536000, immutable"
        version = script.split("/")[-2]
        # What another replica's page names, or what has no version, is checked each time.
        for other in (script.replace(version, "0123456789ab"), "/ops/static/dashboard.js"):
            checked = await visitor.get(other)
            assert (checked.text, checked.headers["Cache-Control"]) == (kept.text, "no-cache")
        for absent in ("nothing.js", "../pages/layout.html", "%2e%2e/templates/layout.html"):
            assert (await visitor.get(f"/ops/static/{version}/{absent}")).status_code == 404


async def test_where_it_is_mounted_does_not_decide_what_is_a_page(app: Holdfast) -> None:
    site = Starlette(routes=[Mount("/api/ops", create(app, settings=read_settings({})))])
    async with client(site) as visitor:
        for path, media in (("/nope", "text/html"), ("/api/nope", "application/problem+json")):
            answer = await visitor.get(f"/api/ops{path}", headers={"Accept": "text/html"})
            assert answer.status_code == 404
            assert answer.headers["Content-Type"].startswith(media)


async def test_links_to_lists_find_types_with_any_name(app: Holdfast, scene: Scene) -> None:
    scene.failed(type=ODD)
    scene.failed(type="mail.send")
    async with client(create(app, settings=read_settings({}))) as visitor:
        for path in ("/types", "/dead", "/"):
            page = (await visitor.get(path)).text
            (link,) = [each for each in links(page) if "all" in each and "filter=" in each][:1]
            found = (await visitor.get(link)).text
            assert found.count("data-key=") == 1, link
