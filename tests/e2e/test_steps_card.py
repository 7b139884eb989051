"""The steps of a durable function on its job's page: what it did, waking it, and running it again from a step."""

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.cli.scene import Scene
from tests.e2e.conftest import on_one_store
from tests.e2e.tabs import OpenPage
from tests.e2e.test_axe import axe as axe
from tests.e2e.test_axe import findings
from tests.e2e.test_pages import check, looks
from tests.support.durable import DurableScene


@pytest.fixture
def durable(scene: Scene) -> DurableScene:
    """A database to be filled with durable functions."""
    return DurableScene(scene)


def row(page: Page, step: str) -> Locator:
    """The row of a step."""
    return page.locator("#steps").get_by_role("row").filter(has_text=step)


@on_one_store
def test_the_card_is_sound_and_accessible_in_every_look(
    axe: Any, durable: DurableScene, open_page: OpenPage
) -> None:
    job = durable.begin()
    durable.record(job, "charge", output='{"paid":40}')
    error = "ValueError: " + "the address is incomplete " * 9
    durable.record(job, "check", state="failed", error=error)
    durable.call(job, 1, 2)
    wait = {"state": "open", "signal": "approved", "signal_key": "7", "key": "7"}
    durable.record(job, "wait:approved", "wait", **wait)
    durable.park(job)
    path = f"/jobs/{job.id}"
    page = open_page(path)
    for scheme, size in looks(page):
        check(page, f"{path} {scheme} {size}")
        assert findings(axe, page, scheme) == [], (scheme, size)


def test_a_signal_is_sent_and_a_function_run_again_in_the_browser(
    durable: DurableScene, open_page: OpenPage
) -> None:
    id = durable.waiting()
    page = open_page(f"/jobs/{id}")
    expect(page.locator(".sentence")).to_contain_text("Waiting for signal approved 7 until")
    expect(row(page, "charge")).to_contain_text("done")
    expect(row(page, "wait:approved[7]")).to_contain_text("waiting")
    page.get_by_label("Data of approved 7, as JSON").fill('{"by": "ana"}')
    page.get_by_role("button", name="Send signal").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("they called")
    dialog.get_by_role("button", name="Send signal").click()
    expect(page.get_by_text("Signal approved sent")).to_be_visible()
    (signal,) = durable.database.read(durable.store.signals.list(10))
    assert (signal.key, signal.data) == ("7", '{"by":"ana"}')
    page.get_by_label("Run again from").select_option("mail[bob]")
    page.get_by_role("button", name="Run again", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Run again").click()
    expect(page.get_by_text("order started")).to_be_visible()
    assert [each[0] for each in durable.scene.deeds()] == ["signal.send", "chain.rerun"]
    assert durable.scene.deeds()[0][2] == "they called"
