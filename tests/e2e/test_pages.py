"""Every page in light and dark, wide and on a phone: no complaint of the browser, nothing unreachable or unnamed."""

import csv
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo

import msgspec
import pytest
import tinycss2
from playwright.sync_api import Page, ViewportSize, expect

from holdfast.core.worker_presence import WorkerSign
from holdfast_dashboard.templates import STATIC
from tests.cli.scene import Scene
from tests.e2e.afternoon import Afternoon
from tests.e2e.conftest import Filled, on_one_store
from tests.e2e.tabs import OpenPage
from tests.support.lint_styles import parsed, rules_of

Scheme = Literal["light", "dark"]

SCHEMES: tuple[Scheme, ...] = ("light", "dark")
SIZES: dict[str, ViewportSize] = {
    "wide": {"width": 1280, "height": 860},
    "phone": {"width": 320, "height": 640},
}

UNNAMED = """() => [...document.querySelectorAll("a, button, input:not([type=hidden]), select, summary")]
  .filter((each) => each.offsetParent !== null)
  .filter((each) => !(each.getAttribute("aria-label") || each.textContent.trim()
    || (each.labels && each.labels.length)))
  .map((each) => each.outerHTML)"""

# Rows of a narrow table are cards, which a reader need not scroll sideways.
SCROLLED = """() => innerWidth > 400 ? [] : [...document.querySelectorAll(".table-box")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.innerText.slice(0, 60))"""

DOUBLED = """() => {
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  return ids.filter((each, place) => ids.indexOf(each) !== place);
}"""


PATHS = (
    *("/", "/?span=24h", "/jobs", "/jobs?filter=state:failed", "/jobs/{dead}"),
    *("/jobs/{report}", "/chains", "/chains/{report}", "/chains/{report}?view=tree"),
    *("/chains/{report}?view=time", "/dead", "/types", "/types/mail.send"),
    *("/types/invoice.archive?span=24h", "/workers", "/workers?all=yes"),
    *("/cycles", "/cycles/reconcile", "/cycles/cleanup"),
    *("/archive", "/archive?state=failed"),
    *("/archive/deliveries/2026-09/0", "/archive/deliveries/2026-10/0"),
    *("/tail", "/audit", "/system", "/sign-in"),
    *("/start", "/start?type=order.charge", "/start?type=mail.send", "/start?like={dead}"),
)


def address(path: str, afternoon: Afternoon) -> str:
    """Where a page is, with the ids of an afternoon."""
    return path.format(report=afternoon.report, dead=afternoon.failed[0])


def paths(afternoon: Afternoon) -> list[str]:
    """The address of every page."""
    return [address(path, afternoon) for path in PATHS]


def looks(page: Page) -> Iterator[tuple[Scheme, str]]:
    """Give a loaded page each scheme and size in turn: only its styles ask for them."""
    for size, viewport in SIZES.items():
        page.set_viewport_size(viewport)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            yield scheme, size


def test_every_page_is_sound_on_postgresql_too(
    filled_postgres: Filled, open_filled_postgres: OpenPage
) -> None:
    page = open_filled_postgres("/")
    for path in paths(filled_postgres.afternoon):
        page.goto(path)
        check(page, path)
    page.goto("/system")
    row = page.get_by_role("row").filter(has_text="outcome").first
    expect(row).to_contain_text("kB")


def check(page: Page, path: str) -> None:
    """Check what holds for every page."""
    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator("main")).to_have_count(1)
    assert page.title().endswith("Holdfast"), path
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.evaluate(UNNAMED) == [], path
    assert page.evaluate(DOUBLED) == [], path
    width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert width <= 0, f"{path} is {width} px wider than the screen"
    assert page.evaluate(SCROLLED) == [], path


def test_an_empty_database_has_pages_too(open_page: OpenPage) -> None:
    page = open_page("/")
    for path in (
        "/",
        "/jobs",
        "/dead",
        "/types",
        "/workers",
        "/cycles",
        "/archive",
        "/tail",
        "/audit",
    ):
        page.goto(path)
        check(page, path)


def test_scripts_and_styles_are_fetched_for_the_first_page_only(open_filled: OpenPage) -> None:
    page = open_filled("/jobs")
    page.goto("/dead", wait_until="load")
    files = page.evaluate(
        """() => performance.getEntriesByType("resource").filter((each) => each.name.includes("/static/"))
          .map((each) => [each.name, each.transferSize])"""
    )
    assert len(files) > 10
    assert [name for name, size in files if size] == []


def test_the_browser_knows_every_declaration_of_the_style_sheets(open_filled: OpenPage) -> None:
    rules = [
        rule
        for file in STATIC.glob("*.css")
        for node in parsed(file)
        for rule in rules_of(file.name, node)
    ]
    declared = [
        (rule.place, each.name, tinycss2.serialize(each.value).strip())
        for rule in rules
        for each in rule.declarations
        if not each.name.startswith("--")
    ]
    assert len(declared) > 500
    unknown = """(declared) => declared.filter(([, name, value]) => !CSS.supports(name, value))"""
    assert open_filled("/").evaluate(unknown, declared) == []


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_a_cycle_shows_its_runs_on_a_time_line_and_in_a_table(
    open_filled: OpenPage, scripts: bool
) -> None:
    page = open_filled("/cycles", java_script_enabled=scripts)
    page.get_by_role("link", name="reconcile").click()
    expect(page.locator("h1")).to_have_text("reconcile")
    bars = page.locator(".timeline rect")
    expect(bars).to_have_count(5)
    expect(page.locator(".timeline rect.failed")).to_have_count(1)
    expect(bars.first.locator("title")).to_contain_text("payments_matched 1,228")
    starts = [float(each.get_attribute("x") or "nan") for each in bars.all()]
    assert starts == sorted(starts)
    table = page.get_by_role("table")
    expect(table.get_by_role("columnheader", name="payments_matched")).to_be_visible()
    expect(table.get_by_role("row").filter(has_text="503 from the bank")).to_have_count(1)


def test_times_are_in_utc_and_on_hover_in_the_readers_zone(
    filled: Filled, open_filled: OpenPage
) -> None:
    page = open_filled(f"/jobs/{filled.afternoon.failed[0]}", timezone_id="America/Santiago")
    created = page.locator("#details time").first
    at = datetime.fromisoformat(created.get_attribute("datetime") or "")
    expect(created).to_have_text(f"{at:%Y-%m-%d %H:%M:%S} UTC")
    local = at.astimezone(ZoneInfo("America/Santiago"))
    expect(created).to_have_attribute("title", re.compile(f"^{local:%Y-%m-%d %H:%M:%S} GMT-"))
    page.goto("/tail")
    line = page.locator("#tail time").first
    at = datetime.fromisoformat(line.get_attribute("datetime") or "")
    expect(line).to_have_text(f"{at:%H:%M:%S}")


def test_a_long_text_is_folded_until_it_is_opened(scene: Scene, open_page: OpenPage) -> None:
    id = scene.start("big", input=msgspec.json.encode(list(range(500))).decode())
    page = open_page(f"/jobs/{id}")
    text = page.get_by_label("Input", exact=True)
    folded = text.bounding_box()
    page.get_by_text("Show all 502 lines").click()
    opened = text.bounding_box()
    assert folded is not None
    assert opened is not None
    assert folded["height"] < 250 < 5_000 < opened["height"]


def test_an_id_is_copied_and_the_job_is_there_as_json(
    filled: Filled, open_filled: OpenPage
) -> None:
    id = filled.afternoon.failed[0]
    page = open_filled(f"/jobs/{id}", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the job's id").click()
    expect(page.locator("[data-copy]").first).to_have_text("copied")
    assert page.evaluate("navigator.clipboard.readText()") == id
    for link, has_secret in (("this job", False), ("with secrets", True)):
        href = page.get_by_role("link", name=link).get_attribute("href") or ""
        found = page.request.get(href)
        assert found.json()["job"]["id"] == id
        assert ("sk_live_12345678" in found.text()) is has_secret


def test_the_page_of_a_type_shows_its_figures(open_filled: OpenPage) -> None:
    page = open_filled("/types")
    page.get_by_role("link", name="mail.send").click()
    expect(page.locator("h1")).to_have_text("mail.send")
    times = page.get_by_role("table", name="Quantiles of run time and wait")
    expect(times.get_by_role("row", name="Run time")).not_to_contain_text("–")
    expect(page.locator("#flow rect.failed").first).to_be_attached()
    slowest = page.locator("#slowest tbody tr")
    expect(slowest).to_have_count(10)
    expect(page.locator("#latest tbody tr")).to_have_count(10)
    slowest.first.get_by_role("link").click()
    expect(page.locator("h1")).to_have_text("mail.send")
    page.get_by_role("link", name="mail.send").click()
    expect(page.locator("#slowest")).to_be_visible()


def test_a_type_that_does_not_exist_is_explained(open_filled: OpenPage) -> None:
    page = open_filled("/types/mail.sned", 404)
    expect(page.locator("main")).to_contain_text("did you mean mail.send?")


def test_a_type_shows_its_week_by_the_hour(filled: Filled, open_filled: OpenPage) -> None:
    page = open_filled("/types/mail.send")
    week = page.locator("#week")
    expect(week.locator(".heat-5")).not_to_have_count(0)
    expect(week).to_contain_text("Last 7 days:")
    for look in looks(page):
        check(page, f"the week {look}")
    page.set_viewport_size(SIZES["phone"])
    assert week.locator(".heat").evaluate("each => each.scrollWidth > each.clientWidth")


def test_a_cycle_that_does_not_exist_is_explained(open_filled: OpenPage) -> None:
    page = open_filled("/cycles/recncile", 404)
    expect(page.locator("main")).to_contain_text("did you mean reconcile?")


def test_the_keyboard_leads_past_the_menu_and_through_the_list(open_filled: OpenPage) -> None:
    page = open_filled("/jobs")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("j")
    expect(page.locator("tbody tr").first.locator("a.row-link")).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("tbody tr").nth(1).locator("input")).to_be_checked()
    page.keyboard.press("/")
    expect(page.locator("#filter")).to_be_focused()
    page.locator("h1").click()
    page.keyboard.press("g")
    page.keyboard.press("d")
    expect(page.locator("h1")).to_have_text("Dead letters")


def test_the_keyboard_leads_to_the_bulk_actions_and_back(open_filled: OpenPage) -> None:
    page = open_filled("/jobs")
    page.keyboard.press("j")
    page.keyboard.press("b")
    expect(page.locator("tbody tr").first.locator("a.row-link")).to_be_focused()
    page.keyboard.press("x")
    page.keyboard.press("b")
    expect(page.get_by_role("button", name="Clear")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("tbody tr").first.locator("a.row-link")).to_be_focused()
    skip = page.get_by_role("link", name="Skip to bulk actions")
    skip.focus()
    skip.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Clear")).to_be_focused()


def test_plain_words_are_searched_and_an_id_opens_its_job(
    filled: Filled, open_filled: OpenPage
) -> None:
    page = open_filled("/jobs")
    page.locator("#filter").fill("declined 4242")
    page.locator("#filter").press("Enter")
    rows = page.locator("tbody tr")
    expect(rows.first).to_contain_text("CardDeclined")
    expect(rows.filter(has_not_text="CardDeclined")).to_have_count(0)
    id = filled.afternoon.failed[0]
    for text in (id, f"…{id[-8:]}", id[:-1]):
        page.goto("/jobs")
        page.locator("#filter").fill(text)
        page.locator("#filter").press("Enter")
        page.wait_for_url(f"**/jobs/{id}")
    page.goto("/jobs?filter=facade")
    expect(page.locator("main")).to_contain_text("No job matches this filter.")


def test_terms_are_suggested_while_a_filter_is_typed(open_filled: OpenPage) -> None:
    page = open_filled("/jobs")
    offered = page.locator("#filter-terms option")
    with page.expect_response("**/api/v1/types"):
        page.locator("#filter").focus()
    page.keyboard.type("sta")
    expect(offered).to_have_count(1)
    expect(offered).to_have_attribute("value", "state:")
    page.keyboard.type("te:f")
    expect(offered).to_have_attribute("value", "state:failed")
    page.keyboard.type("ailed type:mail")
    expect(offered.first).to_have_attribute("value", "state:failed type:mail.send")


def test_what_a_filter_finds_is_downloaded(open_filled: OpenPage) -> None:
    page = open_filled("/jobs?filter=state:failed")
    shown = page.locator("tbody tr").count()
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    with download.value.path().open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == shown
    assert {each["state"] for each in lines} == {"failed"}
    assert {each["id"] for each in lines} == {
        each.get_attribute("data-key") for each in page.locator("tbody tr").all()
    }


def test_shortcuts_can_be_turned_off(open_filled: OpenPage) -> None:
    page = open_filled("/jobs")
    page.get_by_role("button", name="Shortcuts: on").click()
    page.reload()
    page.keyboard.press("/")
    expect(page.locator("#filter")).not_to_be_focused()
    page.get_by_role("button", name="Shortcuts: off").click()
    page.keyboard.press("/")
    expect(page.locator("#filter")).to_be_focused()


def test_without_anything_to_filter_the_key_for_it_does_nothing(open_filled: OpenPage) -> None:
    page = open_filled("/dead")
    page.keyboard.press("j")
    first = page.locator("tbody tr").first.locator("a.row-link")
    page.keyboard.press("/")
    expect(first).to_be_focused()


def test_selecting_everything_is_offered_once_the_whole_page_is_selected(
    open_filled: OpenPage,
) -> None:
    page = open_filled("/jobs")
    wide = page.get_by_role("button", name="Select all jobs in the database")
    page.locator("tbody input").first.check()
    expect(page.locator(".bulk")).to_be_visible()
    expect(wide).to_be_hidden()
    page.locator("[data-select-page]").check()
    expect(wide).to_be_visible()


def test_a_filter_that_makes_no_sense_is_explained(open_filled: OpenPage) -> None:
    page = open_filled("/jobs?filter=stat:failed", 400)
    expect(page.get_by_role("alert")).to_contain_text("did you mean state?")
    expect(page.locator("#filter")).to_have_value("stat:failed")


def test_what_is_not_there_is_said_with_a_code(open_filled: OpenPage) -> None:
    page = open_filled("/jobs/0193a6f0-7c00-7000-8000-000000000000", 404)
    expect(page.get_by_role("alert")).to_contain_text("there is no job")
    expect(page.locator("main")).to_contain_text("HF")


@on_one_store
def test_the_longest_name_of_a_type_widens_no_page(scene: Scene, open_page: OpenPage) -> None:
    name = "x" * 200
    scene.worker(name, id="w" * 100)
    failed = scene.failed(f"Error: {name}", name)
    running = scene.running(name)
    scene.subscribe(name, name)
    scene.database.run(scene.store.workers.set_type(name, paused=True, by="b" * 100))
    page = open_page("/")
    for path in (
        *("/", "/jobs", "/dead", "/types", "/workers", "/tail", "/audit", "/system"),
        *(f"/jobs/{failed}", f"/jobs/{running.id}"),
        *(f"/chains/{failed}?view={view}" for view in ("graph", "tree", "time")),
        *(f"/types/{name}", f"/start?type={name}", f"/start?like={failed}"),
    ):
        page.goto(path)
        for size, viewport in SIZES.items():
            page.set_viewport_size(viewport)
            check(page, f"{path} {size}")


@on_one_store
def test_characters_that_reorder_text_are_shown_as_escapes(
    scene: Scene, open_page: OpenPage
) -> None:
    name, shown = "pay\u202egnp.exe", "pay\\u202egnp.exe"
    id = scene.failed(f"Error: \u2066{name}", name)
    scene.worker(name, id="w\u200e")
    page = open_page("/jobs")
    for path in (
        *("/", "/jobs", "/dead", "/types", "/workers", "/tail"),
        *(f"/jobs/{id}", f"/chains/{id}", f"/chains/{id}?view=time"),
    ):
        page.goto(path)
        expect(page.locator("main")).to_contain_text(shown)
        assert "\u202e" not in page.inner_text("body"), path
    page.goto("/dead")
    page.get_by_role("button", name="Redrive").click()
    expect(page.get_by_role("dialog")).to_contain_text(shown)
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    # What is sent is the name as it is.
    expect(page.locator("main [role=status]")).to_contain_text("1 job re-queued")


@on_one_store
def test_very_long_words_leave_the_actions_within_reach(scene: Scene, open_page: OpenPage) -> None:
    scene.failed("LongWord" * 60, "a" * 120)
    scene.failed()
    sign = WorkerSign("w", "w", "host" * 30, 1, "0.1.0", 4, '["mail.send"]', "{}", "E" * 3_000)
    scene.database.run(scene.store.workers.sign(sign))
    page = open_page("/tail")
    expect(page.locator("#tail li")).to_have_count(2)
    for viewport in SIZES.values():
        page.set_viewport_size(viewport)
        check(page, "/tail")
    for path, button in (("/dead", "Drop"), ("/types", "Pause"), ("/workers", "Drain")):
        page.goto(path)
        for viewport in SIZES.values():
            page.set_viewport_size(viewport)
            check(page, path)
            for each in page.get_by_role("button", name=button, exact=True).all():
                box = each.bounding_box()
                assert box is not None
                assert box["x"] + box["width"] <= viewport["width"], f"{path} hides {button}"


@on_one_store
def test_a_long_name_stays_within_its_box_in_graph_and_timeline(
    scene: Scene, open_page: OpenPage
) -> None:
    chain = scene.ended("complete", "a" * 120)
    for type in ("billing.invoices.remind", "mail"):
        chain = scene.start(type, blockers=(chain,))
    page = open_page(f"/chains/{chain}")
    names = page.locator(".drawing .node .title").evaluate_all(
        "all => all.map((each) => [each, each.parentNode.querySelector('.box')]"
        ".map((it) => { const box = it.getBBox(); return box.x + box.width; }))"
    )
    assert len(names) == 3
    assert [each for each in names if each[0] > each[1]] == []
    page.goto(f"/chains/{chain}?view=time")
    names = page.locator(".drawing .node .title").evaluate_all(
        "all => all.map((each) => each.getBBox().width)"
    )
    assert names
    assert max(names) <= 190


@on_one_store
def test_a_wide_graph_opens_at_the_job_its_chain_has_come_to(
    scene: Scene, open_page: OpenPage
) -> None:
    chain = scene.start("step.0")
    for step in range(1, 9):
        chain = scene.start(f"step.{step}", blockers=(chain,))
    page = open_page(f"/chains/{chain}", viewport={"width": 900, "height": 700})
    box, current = page.locator(".graph-box"), page.locator(".graph-box .current")
    expect(current).to_contain_text("step.8")
    expect(current).to_be_in_viewport(ratio=1)
    assert box.evaluate("each => each.scrollLeft") > 0
