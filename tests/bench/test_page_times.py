"""The pages that are measured: all of them, each with what it shows, and what they are held to."""

import re
from urllib.parse import urlsplit

import httpx
import pytest

from holdfast.settings import read_settings
from holdfast.web.app import create
from holdfast.web.pages.page_dispatch import ROUTES
from holdfast_bench.job_history import seed_history
from holdfast_bench.page_times import SEARCHES, WHOLE, page_target
from holdfast_bench.workload import make_app


@pytest.mark.parametrize(
    ("few", "many", "is_compared", "of", "verdict"),
    [
        (20, 25, True, "× with 10 k jobs", "goal"),
        (20, 60, True, "× with 10 k jobs", "below"),
        (80, 101, True, "ms", "below"),
        (60, 60, True, "ms", "floor"),
        (1, 49, False, "ms", "goal"),
        (200, 101, False, "ms", "below"),
    ],
)
def test_a_page_may_neither_grow_with_the_jobs_nor_take_more_than_a_tenth_of_a_second(
    few: float, many: float, is_compared: bool, of: str, verdict: str
) -> None:
    target = page_target(few, many, is_compared)
    assert (target.of, target.verdict) == (of, verdict)


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
