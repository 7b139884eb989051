"""The page in a real browser, with everything that `make invoicing` starts behind it."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from apps.invoicing.tests.conftest import environment
from playwright.sync_api import Page, expect
from tests.e2e import local_site
from tests.e2e.local_site import running_site
from tests.e2e.tabs import OpenPage
from tests.e2e.test_axe import axe, findings
from tests.e2e.test_pages import SIZES, looks

from invoicing.seed import BUSINESSES

__all__ = ["axe"]

tabs = local_site.tabs
open_page = local_site.open_page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the running application."""
    words = ("apps.invoicing.local", "--headless", "--invoices", "3")
    with running_site(tmp_path_factory.mktemp("page"), environment("mysql://no"), *words) as site:
        yield site


def sign_in(page: Page, position: int = 0) -> Page:
    """Sign in as one of the businesses."""
    page.get_by_role("button", name=BUSINESSES[position].name).click()
    expect(page.get_by_role("heading", name="Invoices")).to_be_visible()
    return page


def a_row(page: Page, action: str) -> Any:
    """Return the first row whose invoice can still be made or sent, by its id so that it stays the same one."""
    button = page.locator("tbody").get_by_role("button", name=re.compile(action)).first
    id = button.evaluate("(button) => button.closest('tr').id")
    return page.locator(f"#{id}")


def test_an_invoice_is_made_and_sent_while_the_page_is_looked_at(open_page: OpenPage) -> None:
    page = sign_in(open_page())
    row = a_row(page, "Make the PDF of")
    row.get_by_role("button", name="Make the PDF of").click()
    expect(page.get_by_role("status")).to_have_text("The PDF is being created.")
    expect(row.get_by_text("ready", exact=True)).to_be_visible()
    with page.expect_download() as download:
        row.get_by_role("link", name="Download").click()
    assert download.value.path().read_bytes().startswith(b"%PDF-")
    row.get_by_role("button", name="Send").click()
    expect(row.get_by_text("invoice sent")).to_be_visible()
    assert row.get_by_role("button").count() == 0


def test_each_state_leads_to_its_job_in_the_dashboard(open_page: OpenPage) -> None:
    page = sign_in(open_page(), 1)
    row = a_row(page, "Make the PDF of")
    row.get_by_role("button", name="Send").click()
    expect(row.get_by_text("invoice sent")).to_be_visible()
    for name, type in (("PDF of", "invoice.pdf.render"), ("invoice of", "invoice.email")):
        page.goto("/")
        row.get_by_role("link", name=f"Job: {name}").click()
        expect(page.locator("main")).to_contain_text(type)


def test_reminders_classes_invoices_and_expenses_are_a_button_each(open_page: OpenPage) -> None:
    page = sign_in(open_page(), 2)
    page.get_by_role("button", name="Send reminders").click()
    expect(page.get_by_text("reminder-1 sent").first).to_be_visible()
    count = page.locator("tbody").first.locator("tr").count()
    page.get_by_role("button", name="Bill this month's classes").click()
    expect(page.get_by_role("status")).to_have_text("This month's classes are billed.")
    expect(page.locator("tbody").first.locator("tr")).not_to_have_count(count)

    page.get_by_text("New invoice").click()
    form = page.locator("details", has_text="New invoice")
    form.get_by_label("What for").fill("<b>Bold</b> advice")
    form.get_by_label("Net amount").fill("1234.50")
    form.get_by_role("button", name="Issue").click()
    expect(page.get_by_text("€1,493.74").or_(page.get_by_text("€1,493.75"))).to_be_visible()

    before = page.locator("tbody").last.inner_text()
    page.get_by_text("New expense").click()
    form = page.locator("details", has_text="New expense")
    form.get_by_label("What for").fill("Chalk")
    form.get_by_label("Net amount").fill("99.99")
    form.get_by_role("button", name="Write").click()
    expect(page.locator("tbody").last).not_to_have_text(before, use_inner_text=True)


def test_the_page_works_without_its_script(open_page: OpenPage) -> None:
    page = sign_in(open_page(java_script_enabled=False))
    row = a_row(page, "Send")
    row.get_by_role("button", name="Send").click()
    expect(page.get_by_role("status")).to_have_text("The e-mail is on its way.")
    expect(row.get_by_text(re.compile("invoice (waiting|sent)"))).to_be_visible()


def test_an_unknown_token_opens_nothing(open_page: OpenPage) -> None:
    page = open_page(later=401)
    page.get_by_label("API token").fill("guess")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("That token is unknown.")
    page.goto("/rows")
    expect(page.get_by_role("heading", name="Invoices")).to_be_visible()


def test_a_business_does_not_get_at_the_invoices_of_another(open_page: OpenPage) -> None:
    page = sign_in(open_page(later=404), 0)
    row = page.locator("tbody").first.locator("tr").first.get_attribute("id") or ""
    page.get_by_role("button", name="Sign out").click()
    sign_in(page, 1)
    for method, path in (("GET", "download"), ("POST", "do/render"), ("POST", "do/send")):
        answer = page.request.fetch(f"/{path}/{row.removeprefix('invoice-')}", method=method)
        assert answer.status == 404


@pytest.mark.parametrize("origin", ["cross-site", "same-site", "none"])
def test_a_form_of_another_site_is_refused(open_page: OpenPage, origin: str) -> None:
    page = sign_in(open_page())
    answer = page.request.post("/do/reminders", headers={"sec-fetch-site": origin})
    assert answer.status == 403


def test_axe_finds_nothing_wrong(axe: Any, open_page: OpenPage) -> None:
    page = open_page()
    assert [findings(axe, page, scheme) for scheme, _ in looks(page)] == [[]] * 4
    sign_in(page)
    page.get_by_text("New invoice").click()
    for scheme, size in looks(page):
        assert findings(axe, page, scheme) == []
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= SIZES[size]["width"], "the page is wider than the screen"
