"""Signing in with a token: what each role sees, and that the token stays out of reach of scripts."""

import pytest
from playwright.sync_api import Page, expect

from holdfast.admin.access import Principal, Role, new_secret, new_token
from holdfast.app import Holdfast
from tests.cli.scene import Scene
from tests.e2e.conftest import on_one_store
from tests.e2e.tabs import OpenPage


def token(app: Holdfast, role: Role) -> str:
    """Make a token of a role; from the first one on everybody needs one."""
    secret = new_secret()
    app.database.run(app.database.store.tokens.create(new_token(Principal("ana", role), secret)))
    return secret


def sign_in(page: Page, secret: str) -> None:
    """Fill in the form."""
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Sign in").click()


def test_whoever_has_no_token_is_sent_to_sign_in_and_back(
    app: Holdfast, scene: Scene, open_page: OpenPage
) -> None:
    id = scene.failed()
    secret = token(app, Role.OPERATOR)
    page = open_page(f"/jobs/{id}?from=mail", later=401)
    expect(page.get_by_label("Token")).to_be_visible()
    sign_in(page, "hf_" + "x" * 43)
    expect(page.get_by_role("alert")).to_have_text("That token is invalid or expired.")
    sign_in(page, secret)
    expect(page.locator("h1")).to_have_text("mail.send")
    assert page.url.endswith(f"/jobs/{id}?from=mail")
    assert page.evaluate("document.cookie") == ""
    expect(page.locator(".rail-foot")).to_contain_text("ana · operator")
    expect(page.locator("main")).to_contain_text("Payloads are visible to developers only.")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()


@on_one_store
def test_a_phone_can_sign_out(app: Holdfast, open_page: OpenPage) -> None:
    secret = token(app, Role.VIEWER)
    size = {"width": 360, "height": 740}
    page = open_page("/jobs", viewport=size, is_mobile=True, has_touch=True)
    sign_in(page, secret)
    expect(page.locator("#live")).to_contain_text("Live")
    for each in page.locator(".rail-foot button:visible").all():
        box, brand = each.bounding_box(), page.locator(".brand").bounding_box()
        assert box is not None
        assert brand is not None
        assert box["height"] >= 24
        assert brand["x"] + brand["width"] <= box["x"]
        assert box["x"] + box["width"] <= 360
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()


@on_one_store
@pytest.mark.parametrize(
    ("role", "buttons"),
    [(Role.VIEWER, []), (Role.OPERATOR, ["Redrive"]), (Role.DEVELOPER, ["Redrive", "Drop"])],
)
def test_a_role_sees_the_actions_it_may_take(
    app: Holdfast, scene: Scene, open_page: OpenPage, role: Role, buttons: list[str]
) -> None:
    scene.failed()
    secret = token(app, role)
    page = open_page("/dead")
    sign_in(page, secret)
    expect(page.locator("h1")).to_have_text("Dead letters")
    assert page.locator("tbody button").all_inner_texts() == buttons


@on_one_store
def test_a_user_without_rights_sees_no_page(app: Holdfast, open_page: OpenPage) -> None:
    secret = token(app, Role.USER)
    page = open_page("/jobs", later=403)
    sign_in(page, secret)
    expect(page.get_by_role("alert")).to_contain_text("does not allow job.list")
