"""The built documentation in a browser: its search finds pages by the words people use, and code can be copied."""

from __future__ import annotations

import fcntl
import io
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import expect
from sphinx.application import Sphinx

from tests.docs.snippets import DOCS, python_blocks
from tests.e2e.tabs import OpenPage, Tabs, opening


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The documentation, built as `make docs` does, by one process of the run for all."""
    place = tmp_path_factory.getbasetemp()
    folder = (place.parent if hasattr(request.config, "workerinput") else place) / "site"
    folder.mkdir(exist_ok=True)
    html, is_done = folder / "html", folder / "done"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_done.exists():
            sphinx = Sphinx(
                *(DOCS, DOCS, html, folder / "read", "html"), status=None, warning=io.StringIO()
            )
            sphinx.build()
            is_done.touch()
    return html


@pytest.fixture(scope="module")
def address(built: Path) -> Iterator[str]:
    """Where the site is served."""
    handler = partial(QuietHandler, directory=str(built))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def open_page(tabs: Tabs, address: str) -> Iterator[OpenPage]:
    """Opens pages of the site, which must not complain."""
    with opening(tabs, address) as open:
        yield open


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("periodic task", "do/schedules"),
        ("cron", "do/schedules"),
        ("cron", "understand/cycles"),
        ("beat", "do/schedules"),
        ("delayed job", "do/schedules"),
        ("priority", "do/schedules"),
        ("login", "run/security"),
        ("login", "run/troubleshooting"),
        ("password", "run/security"),
        ("dead letter queue", "understand/words"),
        ("alembic autogenerate", "do/alembic"),
        ("windows", "start/install"),
        ("macos", "start/install"),
        ("database is locked", "run/troubleshooting"),
        ("disk million", "run/capacity"),
    ],
)
def test_the_search_finds_what_people_call_it(open_page: OpenPage, words: str, wanted: str) -> None:
    page = open_page(f"/search.html?q={words.replace(' ', '+')}")
    found = page.locator(f'#search-results li a[href^="{wanted}.html"]')
    expect(found.first).to_be_visible()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("retry", "do/retries"),
        ("cron", "do/schedules"),
        ("delay", "do/schedules"),
        ("priority", "do/schedules"),
        ("cancel", "do/looking"),
        ("result", "do/waiting"),
        ("rate limit", "do/api-quota"),
        ("exactly once", "understand/at-least-once"),
        ("docker", "run/deploy"),
        ("kubernetes", "run/deploy"),
        pytest.param("backup", "run/backup"),
        ("periodic task", "do/schedules"),
    ],
)
def test_the_search_shows_the_how_to_first(open_page: OpenPage, words: str, wanted: str) -> None:
    page = open_page(f"/search.html?q={words.replace(' ', '+')}")
    found = page.locator("#search-results ul.search > li > a")
    expect(page.locator("#search-results .search-summary")).to_contain_text("found")
    addresses = [str(each.get_attribute("href")) for each in found.all()]
    assert any(each.startswith(f"{wanted}.html") for each in addresses[:3]), addresses[:5]
    # Decisions and attributes that only share the name come after every page.
    is_last = [each.startswith("adr/") or ".contrib." in each for each in addresses]
    rest = addresses[is_last.index(True) :] if True in is_last else []
    assert [each for each in rest if not each.startswith(("adr/", "reference/api.html#"))] == []


def test_a_block_of_code_is_copied_as_printed(open_page: OpenPage, address: str) -> None:
    page = open_page("/index.html")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
    button = page.locator(".highlight-python .copy-code").first
    button.focus()
    button.press("Enter")
    expect(button).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == python_blocks("docs/index.md")[0].rstrip("\n")


def test_drawings_have_no_button(open_page: OpenPage) -> None:
    page = open_page("/index.html")
    expect(page.locator(".highlight-python .copy-code").first).to_be_attached()
    assert page.locator(".highlight-text pre").count() > 0
    assert page.locator(".highlight-text .copy-code").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_landing_page_shows_code_and_the_pictures(open_page: OpenPage, scheme: str) -> None:
    page = open_page("/index.html", color_scheme=scheme)
    expect(page.locator(".highlight-python").first).to_contain_text("app.start(tx, charge")
    shown = page.locator("article img:visible")
    expect(shown).to_have_count(3)
    expect(shown.first).to_have_class("logo")
    for each in shown.all():
        each.scroll_into_view_if_needed()
        assert each.evaluate("async (image) => { await image.decode(); return image.naturalWidth }")


def test_no_code_of_the_landing_page_is_cut_on_a_laptop(open_page: OpenPage) -> None:
    page = open_page("/index.html", viewport={"width": 1280, "height": 800})
    expect(page.locator(".highlight-console pre").first).to_contain_text("pip install")
    cut = page.locator("article pre").evaluate_all(
        "all => all.filter(pre => pre.scrollWidth > pre.clientWidth).map(pre => pre.innerText)"
    )
    assert cut == []


def test_the_landing_page_fits_a_phone(open_page: OpenPage) -> None:
    page = open_page("/index.html", viewport={"width": 375, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    expect(page.locator("article img.logo")).to_be_in_viewport()
