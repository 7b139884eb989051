"""Every page is sound and keeps axe-core's rules for WCAG 2.2 AA: light and dark, wide and on a phone, with dialogs."""

from typing import Any

import pytest
from playwright.sync_api import Page

from tests.e2e.conftest import Filled
from tests.e2e.tabs import OpenPage
from tests.e2e.test_pages import PATHS, SCHEMES, Scheme, address, check, looks
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
# Half of axe's time is contrast, element by element: of rows that look the same, one is enough.
KEEP_ONE_ROW_OF_EACH_LOOK = """() => {
  const look = (each) => {
    const style = getComputedStyle(each);
    return [each.tagName, each.className, style.color, style.backgroundColor, style.fontSize,
      style.fontWeight, style.opacity].join();
  };
  const known = new Set();
  for (const row of document.querySelectorAll("main tbody tr, main li")) {
    const found = [row, ...row.querySelectorAll("*")].map(look).join("\\n");
    if (known.has(found)) row.remove();
    known.add(found);
  }
}"""
VIOLATIONS = "async (options) => (await axe.run(options)).violations"
OPTIONS_BY_SCHEME = {"light": OPTIONS, "dark": OPTIONS_OF_COLOURS}


@pytest.fixture(scope="module")
def axe() -> Any:
    """Axe-core, where it is installed."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        skip_because_absent("axe-core, so accessibility by its rules", "Run: make setup")
    return Axe()


def findings(axe: Any, page: Page, scheme: Scheme = "light") -> list[str]:
    """What axe finds wrong with a page in a scheme, each with where it is."""
    # As `axe.run` does it, but a page gets the script once, not with every look at it.
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe.axe_script)
    page.evaluate(KEEP_ONE_ROW_OF_EACH_LOOK)
    found = page.evaluate(VIOLATIONS, OPTIONS_BY_SCHEME[scheme])
    return [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in found
        for node in each["nodes"]
    ]


def findings_in_each_scheme(axe: Any, page: Page) -> list[str]:
    """What axe finds wrong with a page in light and in dark."""
    found: list[str] = []
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        found += findings(axe, page, scheme)
    return found


@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_sound_and_axe_finds_nothing_wrong_with_it(
    request: pytest.FixtureRequest, filled: Filled, open_filled: OpenPage, path: str
) -> None:
    page = open_filled(address(path, filled.afternoon))
    for look in looks(page):
        check(page, f"{path} {look}")
    axe = request.getfixturevalue("axe")  # what comes before does not need it
    found = {look: findings(axe, page, look[0]) for look in looks(page)}
    assert not any(found.values()), found


def test_axe_finds_nothing_wrong_with_a_selection_and_its_dialog(
    axe: Any, open_filled: OpenPage
) -> None:
    page = open_filled("/jobs?filter=state:failed")
    page.locator("tbody input").first.check()
    assert findings_in_each_scheme(axe, page) == []
    page.get_by_role("button", name="Retry").click()
    assert findings_in_each_scheme(axe, page) == []


def test_axe_finds_nothing_wrong_with_a_question_that_no_script_asked(
    axe: Any, open_filled: OpenPage
) -> None:
    page = open_filled("/dead")
    page.evaluate(
        """() => {
            const form = document.querySelector("form[data-confirm]");
            form.insertAdjacentHTML("beforeend", '<input name="move" value="redrive">');
            form.submit();
        }"""
    )
    page.get_by_role("dialog").get_by_label("Rate").wait_for()
    assert findings_in_each_scheme(axe, page) == []


def test_axe_finds_what_is_wrong(axe: Any, open_filled: OpenPage) -> None:
    page = open_filled("/jobs")
    page.evaluate("document.querySelector('h1').innerHTML = '<img src=\"/static/icon.svg\">'")
    assert any("image-alt" in each for each in findings(axe, page))


def test_axe_finds_what_is_too_pale_in_the_dark(axe: Any, open_filled: OpenPage) -> None:
    page = open_filled("/jobs", color_scheme="dark")
    page.evaluate("document.querySelector('h1').style.color = '#333'")
    assert any("color-contrast" in each for each in findings(axe, page, "dark"))
