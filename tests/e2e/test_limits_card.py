"""The limits of a type on its page: which keys are full or paused, and changing that in the browser."""

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from holdfast import Rate
from tests.cli.scene import Scene
from tests.e2e.conftest import on_one_store
from tests.e2e.tabs import OpenPage
from tests.e2e.test_axe import axe as axe
from tests.e2e.test_axe import findings
from tests.e2e.test_pages import check, looks
from tests.support.limited_scene import MAIL, LimitedScene, flow

PATH = "/types/mail.send"


@pytest.fixture
def limited(scene: Scene) -> LimitedScene:
    """A type with a key that is full, one that is open and one that is paused."""
    made = LimitedScene(scene)
    made.declare(MAIL)
    made.start(MAIL, "acme", 5)
    made.start(MAIL, "tiny", 1)
    made.claim(MAIL)
    made.start(MAIL, "slow", 2)
    rest = made.store.limits.rest("mail.send#slow", 3_600_000, "429 from their server")
    made.database.run(rest)
    return made


def row(page: Page, key: str) -> Locator:
    """The row of a key."""
    return page.locator("#limits").get_by_role("row").filter(has_text=key)


def test_the_card_tells_which_keys_are_full_open_and_paused(
    limited: LimitedScene, open_page: OpenPage
) -> None:
    page = open_page(PATH)
    expect(page.locator("#limits header")).to_contain_text("2 per tenant_id")
    expect(row(page, "acme")).to_contain_text("full")
    expect(row(page, "acme")).to_contain_text("2 of 2")
    expect(row(page, "tiny")).to_contain_text("open")
    expect(row(page, "slow")).to_contain_text("429 from their server")
    page.goto("/types")
    expect(page.get_by_role("row").filter(has_text="mail.send")).to_contain_text("2 keys full")


@on_one_store
def test_the_card_is_sound_and_accessible_in_every_look(
    axe: Any, limited: LimitedScene, open_page: OpenPage
) -> None:
    page = open_page(PATH)
    for path in (PATH, "/types"):
        page.goto(path)
        for scheme, size in looks(page):
            check(page, f"{path} {scheme} {size}")
            assert findings(axe, page, scheme) == [], (path, scheme, size)


def test_a_key_is_paused_resumed_and_given_a_limit_in_the_browser(
    limited: LimitedScene, open_page: OpenPage
) -> None:
    page = open_page(PATH)
    row(page, "acme").get_by_role("button", name="Pause 10 min").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause 10 min").click()
    expect(row(page, "acme")).to_contain_text("paused")
    row(page, "slow").get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(row(page, "slow")).to_contain_text("open")
    card = page.locator("#limits")
    card.get_by_label("Key", exact=True).fill("acme")
    card.get_by_label("At once", exact=True).fill("4")
    card.get_by_label("Reason, for the audit log").fill("they upgraded")
    card.get_by_role("button", name="Set limit").click()
    expect(row(page, "acme")).to_contain_text("2 of 4")
    assert ("limit.set", "limit mail.send acme", "they upgraded") in limited.scene.deeds()


def test_a_job_links_those_that_hold_its_limit_and_counts_down_to_the_next_permit(
    limited: LimitedScene, open_page: OpenPage
) -> None:
    *_, waiting = limited.start(MAIL, "full", 3)
    holders = [each.id for each in limited.claim(MAIL)]
    page = open_page(f"/jobs/{waiting}")
    expect(page.locator(".sentence")).to_contain_text("Waiting for tenant_id full: 2 of 2 running")
    for id in holders:
        expect(page.locator(f"#details a[href$='/jobs/{id}']")).to_be_visible()
    page.locator(f"#details a[href$='/jobs/{holders[0]}']").click()
    expect(page.locator("#details")).to_contain_text(holders[0])
    rated = flow("sms.send", rates=[Rate(1, "1h", name="gateway")])
    limited.declare(rated, worker="w-8")
    _, waiting = limited.start(rated, "", 2)
    limited.claim(rated)
    page.goto(f"/jobs/{waiting}")
    expect(page.locator(".sentence")).to_contain_text("at most 1/1h, the next can start in 59 min")
    expect(page.locator(".sentence time[data-until]")).to_have_text("59 min")
