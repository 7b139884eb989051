"""The page in a real browser, with everything that `make tenders` starts behind it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apps.invoicing.tests.test_local import read_addresses
from apps.tenders.tests.conftest import environment
from playwright.sync_api import expect
from tests.e2e.chromium import find_chromium, launched
from tests.e2e.tabs import OpenPage, Tabs, opening
from tests.e2e.test_axe import axe, findings
from tests.e2e.test_pages import SIZES, looks
from tests.support.absent import skip_because_absent

__all__ = ["axe"]


@pytest.fixture(scope="module")
def tabs() -> Iterator[Tabs]:
    """Pages of Chromium, without a screen; for this module, as other tests here have event loops of their own."""
    path = find_chromium()
    if path is None:
        skip_because_absent("Chromium, so the page of tenders", "Run: make setup-system")
    with launched(path) as browser:
        yield Tabs(browser)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the running application."""
    words = ["tenders.local", "--headless", "--tenders", "6", "--devices", "40"]
    place: Path = tmp_path_factory.mktemp("page")
    with subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=place,
        env=environment("sqlite:///unused.db", PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield read_addresses(process.stdout)["page"].rstrip("/")
        process.terminate()


@pytest.fixture
def open_page(tabs: Tabs, site: str) -> Iterator[OpenPage]:
    """Open pages of the application."""
    with opening(tabs, site) as open:
        yield open


def test_tenders_deliveries_and_runs_come_by_themselves(open_page: OpenPage) -> None:
    page = open_page()
    expect(page.locator("#tender-rows").get_by_text("yes").first).to_be_visible(timeout=60_000)
    expect(page.locator("#delivery-rows").get_by_text("ok").first).to_be_visible(timeout=60_000)
    expect(page.locator("#run-rows")).to_contain_text(re.compile("ingest|dispatch|receipt"))
    expect(page.locator("#totals")).to_contain_text("active devices")


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
