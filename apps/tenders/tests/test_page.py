"""The page in a real browser, with everything that `make tenders` starts behind it."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from apps.tenders.tests.conftest import environment
from playwright.sync_api import expect
from tests.e2e import local_site
from tests.e2e.local_site import running_site
from tests.e2e.tabs import OpenPage
from tests.e2e.test_axe import axe, findings
from tests.e2e.test_pages import SIZES, looks

__all__ = ["axe"]

tabs = local_site.tabs
open_page = local_site.open_page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the running application."""
    words = ("apps.tenders.local", "--headless", "--tenders", "6", "--devices", "40")
    with running_site(tmp_path_factory.mktemp("page"), environment("mysql://no"), *words) as site:
        yield site


def test_tenders_deliveries_and_runs_come_by_themselves(open_page: OpenPage) -> None:
    page = open_page()
    expect(page.locator("#tender-rows").get_by_text("yes").first).to_be_visible(timeout=60_000)
    expect(page.locator("#delivery-rows").get_by_text("ok").first).to_be_visible(timeout=60_000)
    expect(page.locator("#run-rows")).to_contain_text(re.compile("ingest|dispatch|receipt"))
    expect(page.locator("#totals")).to_contain_text("active devices")


def test_the_archive_s_manifests_come_by_themselves(open_page: OpenPage) -> None:
    page = open_page()
    rows = page.locator("#manifest-rows")
    expect(rows).to_contain_text(re.compile(r"tenders/\d{4}-\d\d/0"), timeout=60_000)
    expect(rows.get_by_text("dropped").first).to_be_visible(timeout=60_000)


def test_a_run_leads_to_its_cycle_in_the_dashboard(open_page: OpenPage) -> None:
    page = open_page()
    name = page.locator("#run-rows a").first.text_content() or ""
    page.locator("#run-rows a").first.click()
    expect(page.locator("main")).to_contain_text(name)


def test_the_page_can_be_read_without_its_script(open_page: OpenPage) -> None:
    page = open_page(java_script_enabled=False)
    expect(page.get_by_role("heading", name="Newest tenders")).to_be_visible()
    expect(page.locator("#tender-rows tr").first).to_be_visible()


def test_axe_finds_nothing_wrong(axe: Any, open_page: OpenPage) -> None:
    page = open_page()
    for scheme, size in looks(page):
        assert findings(axe, page, scheme) == []
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= SIZES[size]["width"], "the page is wider than the screen"
