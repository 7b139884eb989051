"""The archive's pages in a browser: manifests are looked at, verified and restored, with and without scripts."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from holdfast.app import Holdfast
from tests.archive.scene import OCTOBER, Deliveries, damage, declare
from tests.cli.scene import Scene
from tests.e2e.conftest import on_one_store
from tests.e2e.tabs import OpenPage
from tests.e2e.test_moves import confirm


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the objects are; the dashboard knows it by HOLDFAST_ARCHIVE."""
    found = tmp_path / "archive"
    monkeypatch.setenv("HOLDFAST_ARCHIVE", str(found))
    return found


@pytest.fixture
def deliveries(root: Path, app: Holdfast, url: str) -> Deliveries:
    """A table that is archived."""
    found = Deliveries(url)
    found.create()
    assert declare(app, root).run().periods == 2
    return found


def test_a_manifest_is_found_verified_and_restored(
    deliveries: Deliveries, scene: Scene, open_page: OpenPage
) -> None:
    page = open_page("/archive")
    expect(page.get_by_role("row").filter(has_text=OCTOBER)).to_contain_text("verified")
    page.get_by_role("link", name=OCTOBER).click()
    expect(page.locator("h1")).to_have_text(OCTOBER)
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"Verify {OCTOBER}?")
    confirm(page, "Verify", "the yearly check")
    expect(page.get_by_role("status").first).to_contain_text(f"{OCTOBER} verified")
    deliveries.execute("delete from deliveries")
    page.get_by_role("button", name="Restore").click()
    confirm(page, "Restore")
    expect(page.locator("#manifest")).to_contain_text("50 rows restored, 0 already there")
    assert deliveries.count() == 50
    assert ("archive.verify", f"manifest {OCTOBER}", "the yearly check") in scene.deeds()


@on_one_store
def test_without_scripts_a_restore_is_confirmed_on_a_page(
    deliveries: Deliveries, open_page: OpenPage
) -> None:
    deliveries.execute("delete from deliveries")
    page = open_page(f"/archive/{OCTOBER}", java_script_enabled=False)
    page.get_by_role("button", name="Restore").click()
    expect(page.locator("main")).to_contain_text(f"Restore {OCTOBER}?")
    page.get_by_role("button", name="Restore").click()
    expect(page.locator("main")).to_contain_text("50 rows restored, 0 already there")
    assert deliveries.count() == 50


@on_one_store
def test_a_damaged_object_is_reported(
    deliveries: Deliveries, root: Path, open_page: OpenPage
) -> None:
    damage(root, OCTOBER)
    page = open_page(f"/archive/{OCTOBER}", later=409, java_script_enabled=False)
    page.get_by_role("button", name="Verify").click()
    page.get_by_role("button", name="Verify").click()
    expect(page.locator("main")).to_contain_text("HF111")
    page.goto(f"/archive/{OCTOBER}")
    expect(page.locator("#manifest")).to_contain_text("failed")
