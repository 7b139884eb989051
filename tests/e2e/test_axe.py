"""Axe-core's rules for WCAG 2.2 AA on every page, in light and dark, wide and on a phone, with dialogs open too."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.e2e.conftest import Filled, OpenPage, opening
from tests.e2e.test_pages import PATHS, SIZES, address
from tests.support.absent import skip_because_absent

# What axe would fetch by itself, the pages' policy forbids; it sees all styles without.
OPTIONS = {
    "runOnly": {
        "type": "tag",
        "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    },
    "resultTypes": ["violations"],
    "preload": False,
}
# Another scheme changes nothing but colours.
OPTIONS_OF_COLOURS = OPTIONS | {
    "runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
}
SCHEMES = {"light": OPTIONS, "dark": OPTIONS_OF_COLOURS}


@pytest.fixture(scope="module")
def axe() -> Any:
    """Axe-core, where it is installed."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        skip_because_absent("axe-core, so accessibility by its rules", "Run: make setup")
    return Axe()


def findings(axe: Any, page: Page, scheme: str = "light") -> list[str]:
    """What axe finds wrong with a page in a scheme, each with where it is."""
    found = axe.run(page, options=SCHEMES[scheme]).response["violations"]
    return [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in found
        for node in each["nodes"]
    ]


@pytest.fixture(scope="module")
def page_of(browser: Browser, filled: Filled) -> Iterator[Callable[[str, str], Page]]:
    """A page for each scheme and size: to open one costs the browser several times as much as to go on in it."""
    with opening(browser, filled.address) as open:
        yield cache(lambda scheme, size: open(color_scheme=scheme, viewport=SIZES[size]))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_nothing_wrong_with_any_page(
    axe: Any,
    filled: Filled,
    page_of: Callable[[str, str], Page],
    scheme: str,
    size: str,
    path: str,
) -> None:
    page = page_of(scheme, size)
    answer = page.goto(address(path, filled.afternoon))
    assert answer is not None
    assert answer.status == 200
    assert findings(axe, page, scheme) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_nothing_wrong_with_a_selection_and_its_dialog(
    axe: Any, open_filled: OpenPage, scheme: str
) -> None:
    page = open_filled("/jobs?filter=state:failed", color_scheme=scheme)
    page.locator("tbody input").first.check()
    assert findings(axe, page, scheme) == []
    page.get_by_role("button", name="Retry").click()
    assert findings(axe, page, scheme) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_nothing_wrong_with_a_question_that_no_script_asked(
    axe: Any, open_filled: OpenPage, scheme: str
) -> None:
    page = open_filled("/dead", color_scheme=scheme)
    page.evaluate(
        """() => {
            const form = document.querySelector("form[data-confirm]");
            form.insertAdjacentHTML("beforeend", '<input name="move" value="redrive">');
            form.submit();
        }"""
    )
    page.get_by_role("dialog").get_by_label("Rate").wait_for()
    assert findings(axe, page, scheme) == []


def test_axe_finds_what_is_wrong(axe: Any, open_filled: OpenPage) -> None:
    page = open_filled("/jobs")
    page.evaluate("document.querySelector('h1').innerHTML = '<img src=\"/static/icon.svg\">'")
    assert any("image-alt" in each for each in findings(axe, page))


def test_axe_finds_what_is_too_pale_in_the_dark(axe: Any, open_filled: OpenPage) -> None:
    page = open_filled("/jobs", color_scheme="dark")
    page.evaluate("document.querySelector('h1').style.color = '#333'")
    assert any("color-contrast" in each for each in findings(axe, page, "dark"))
