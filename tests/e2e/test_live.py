"""Pages follow what happens, and stay still under somebody's hand."""

from playwright.sync_api import Page, expect

from holdfast.admin.access import Principal, Role, new_secret, new_token
from holdfast.app import Holdfast
from tests.cli.scene import Scene
from tests.e2e.conftest import on_one_store
from tests.e2e.tabs import OpenPage

REFRESHED = "(count) => Number(document.body.dataset.refreshes || 0) >= count"


def refreshes(page: Page) -> int:
    """How often the page has brought itself up to date."""
    return int(page.evaluate("Number(document.body.dataset.refreshes || 0)"))


def test_new_jobs_appear_and_change_by_themselves(scene: Scene, open_page: OpenPage) -> None:
    page = open_page("/jobs")
    expect(page.locator("main")).to_contain_text("No job has been started yet")
    job = scene.running()
    row = page.locator(f'tr[data-key="{job.id}"]')
    expect(row.locator(".chip")).to_have_text("running")
    scene.finish(job, "complete")
    expect(row.locator(".chip")).to_have_text("completed")


@on_one_store
def test_selected_rows_survive_ten_hints_and_the_page_goes_on_afterwards(
    app: Holdfast, scene: Scene, open_page: OpenPage
) -> None:
    ids = [scene.start() for _ in range(5)]
    page = open_page("/jobs")
    chosen = page.locator(f'input[value="{ids[1]}"], input[value="{ids[3]}"]')
    for each in chosen.all():
        each.check()
    expect(page.locator("[data-count]")).to_have_text("2 selected")
    expect(page.locator("#live")).to_have_attribute("data-mode", "held")
    page.evaluate(
        """() => { window.hints = 0;
        const source = new EventSource(document.body.dataset.stream);
        source.addEventListener("hint", () => { window.hints += 1; }); }"""
    )
    before = refreshes(page)
    for number in range(1, 11):
        scene.start()
        with app.transaction() as tx:
            app.start(tx, "mail.send", {})
        page.wait_for_function("(count) => window.hints >= count", arg=number)
    assert refreshes(page) == before
    expect(page.locator("tbody tr")).to_have_count(5)
    assert [each.is_checked() for each in chosen.all()] == [True, True]
    page.get_by_role("button", name="Clear").click()
    page.mouse.move(0, 0)
    expect(page.locator("tbody tr")).to_have_count(25)


@on_one_store
def test_rows_do_not_move_under_the_pointer(scene: Scene, open_page: OpenPage) -> None:
    first = scene.start()
    page = open_page("/jobs")
    row = page.locator(f'tr[data-key="{first}"]')
    row.hover()
    second = scene.start()
    scene.claim()
    expect(page.locator("#new-rows")).to_have_text("Show 1 new row")
    expect(row.locator(".chip")).to_have_text("running")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("#new-rows").click()
    expect(page.locator("tbody tr").first).to_have_attribute("data-key", second)


@on_one_store
def test_refreshing_rests_while_a_dialog_is_open(scene: Scene, open_page: OpenPage) -> None:
    job = scene.failed()
    page = open_page(f"/jobs/{job}")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator("#live")).to_have_attribute("data-mode", "held")
    # What pauses by itself offers neither to pause nor to resume.
    expect(page.locator("#live [data-word]")).to_have_text("Paused: dialog open")
    expect(page.locator("#live-switch")).to_be_hidden()
    page.get_by_role("button", name="Go back").click()
    expect(page.locator("#live-switch")).to_have_text("pause")
    expect(page.locator("#live")).to_have_attribute("data-mode", "on")


@on_one_store
def test_refreshing_can_be_stopped_by_hand(scene: Scene, open_page: OpenPage) -> None:
    page = open_page("/jobs")
    page.locator("#live-switch").click()
    expect(page.locator("#live")).to_have_attribute("data-mode", "held")
    expect(page.locator("#live [data-word]")).to_have_text("Paused")
    expect(page.locator("#live-switch")).to_have_text("resume")
    page.locator("#live-switch").click()
    scene.start()
    expect(page.locator("tbody tr")).to_have_count(1)


TURN_AWAY = """(away) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => away });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@on_one_store
def test_tabs_that_nobody_sees_leave_their_connections_to_the_others(
    scene: Scene, open_page: OpenPage
) -> None:
    first = open_page("/jobs")
    tabs = [first]
    # A browser keeps six connections to one server; each visible tab's stream holds one.
    for _ in range(7):
        tabs[-1].evaluate(TURN_AWAY, True)
        tabs.append(first.context.new_page())
        tabs[-1].goto("/jobs")
    scene.start()
    expect(tabs[-1].locator("tbody tr")).to_have_count(1)
    first.evaluate(TURN_AWAY, False)
    expect(first.locator("#live")).to_have_attribute("data-mode", "on")
    expect(first.locator("tbody tr")).to_have_count(1)


def test_the_tail_tells_what_happens(scene: Scene, open_page: OpenPage) -> None:
    page = open_page("/tail")
    job = scene.running("order.charge")
    line = page.locator("#tail li").first
    expect(line).to_contain_text("order.charge")
    scene.finish(job, "fail", error="Boom: it broke")
    expect(line).to_contain_text("Boom: it broke")


@on_one_store
def test_a_tail_says_when_its_stream_is_broken_and_takes_it_up_again(
    scene: Scene, open_page: OpenPage
) -> None:
    scene.start("told.once")
    page = open_page("/tail", later=502)
    page.route("**/api/v1/tail*", lambda route: route.fulfill(status=502, body="Bad Gateway"))
    page.reload()
    mode = page.locator("#live")
    expect(mode).to_have_text("Reconnecting")
    page.unroute("**/api/v1/tail*")
    expect(mode).to_have_text("Live")
    expect(page.locator("#tail li")).to_have_count(1)


@on_one_store
def test_a_page_whose_token_was_revoked_says_so(
    app: Holdfast, scene: Scene, open_page: OpenPage
) -> None:
    secret = new_secret()
    token = app.database.run(
        scene.store.tokens.create(new_token(Principal("ana", Role.VIEWER), secret))
    )
    page = open_page("/sign-in", later=401)
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    mode = page.locator("#live")
    expect(mode).to_contain_text("Live")
    app.database.run(scene.store.tokens.revoke(token.id))
    scene.start()
    expect(mode).to_contain_text("Signed out")
