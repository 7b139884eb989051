"""The pages that are measured: all of them, each with what it shows, and what they are held to."""

import re
from urllib.parse import urlsplit

import httpx
import pytest

from holdfast.settings import read_settings
from holdfast.web.app import create
from holdfast_bench.job_history import seed_history
from holdfast_bench.page_times import SEARCHES, WHOLE, worst_page
from holdfast_bench.workload import make_app
from holdfast_dashboard.page_dispatch import ROUTES


def test_the_page_that_grows_most_decides_and_the_slowest_are_named() -> None:
    few, many = {"jobs": 10.0, "types": 40.0}, {"jobs": 25.0, "types": 60.0}
    result = worst_page("pages", "ms", many, few, "with 10 k jobs", floor=2.0, goal=1.5)
    assert (result.ours, result.baseline, result.ratio, result.verdict) == (25, 10, 2.5, "below")
    assert result.beside == {"worst jobs": 25, "types": 60, "jobs": 25}


def test_every_page_of_the_dashboard_is_measured() -> None:
    measured = {urlsplit(path).path for path in WHOLE.values()}
    pages = [each.path for each in ROUTES if each.method == "GET"]
    assert [each for each in pages if not any(_is_of(path, each) for path in measured)] == []


def _is_of(path: str, page: str) -> bool:
    pattern = re.sub(r"\\\{[^}]*path\\\}", ".+", re.escape(page))
    return re.fullmatch(re.sub(r"\\\{[^}]+\\\}", "[^/]+", pattern), path) is not None


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_every_measured_page_finds_what_it_shows(
    request: pytest.FixtureRequest, store: str
) -> None:
    url: str = request.getfixturevalue(f"{store}_url")
    seed_history(url, 1_000)
    app = make_app(url)
    transport = httpx.ASGITransport(
        create(app, settings=read_settings({})), client=("127.0.0.1", 50_000)
    )
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as browser:
        failed = await browser.get("/api/v1/jobs", params={"filter": "state:failed", "limit": 1})
        (job,) = failed.json()["items"]
        searches = [f"/jobs?filter={each}" for each in SEARCHES]
        for path in [*WHOLE.values(), *searches]:
            answer = await browser.get(path.replace("{id}", job["id"]))
            assert answer.status_code == 200, (path, answer.text[:300])
    await app.aclose()
