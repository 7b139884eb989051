"""A browser for the package, a served dashboard for each test, and pages that must not complain."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from holdfast.app import Holdfast
from tests.cli.scene import Scene
from tests.e2e.afternoon import Afternoon
from tests.e2e.chromium import find_chromium, launched
from tests.e2e.serving import served
from tests.support.absent import skip_because_absent
from tests.support.until import PATIENCE_S

OpenPage = Callable[..., Page]

expect.set_options(timeout=PATIENCE_S * 1000)


# For the package, not the session: while Playwright runs, this thread has an event loop, which others must not meet.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium, without a screen."""
    path = find_chromium()
    if path is None:
        skip_because_absent("Chromium, so the dashboard", "Run: make setup-system")
    with launched(path) as browser:
        yield browser


class Filled(NamedTuple):
    """A served dashboard over a believable afternoon; tests only look at it."""

    address: str
    afternoon: Afternoon


@pytest.fixture(scope="package")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A dashboard with something to show, for all tests that change nothing."""
    with _filled(f"sqlite:///{tmp_path_factory.mktemp('e2e') / 'filled.db'}") as found:
        yield found


@pytest.fixture
def filled_postgres(postgres_url: str) -> Iterator[Filled]:
    """The same on PostgreSQL."""
    with _filled(postgres_url) as found:
        yield found


@contextmanager
def _filled(url: str) -> Iterator[Filled]:
    app = Holdfast(url, open_types=True)
    app.migrate()
    afternoon = Afternoon(app.database)
    afternoon.fill()
    with served(app) as address:
        yield Filled(address, afternoon)
    app.close()


@pytest.fixture(params=["sqlite_url", "postgres_url"], ids=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of each store in turn."""
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def app(url: str) -> Iterator[Holdfast]:
    """A migrated application whose dashboard is served."""
    app = Holdfast(url, open_types=True)
    app.migrate()
    yield app
    app.close()


@pytest.fixture
def scene(app: Holdfast) -> Scene:
    """The application's database, to be filled."""
    return Scene(app.database)


@pytest.fixture
def site(app: Holdfast, url: str) -> Iterator[str]:
    """Where the dashboard is."""
    behind = Holdfast(url, open_types=True)
    with served(behind) as address:
        yield address
    behind.close()


@pytest.fixture
def open_page(browser: Browser, site: str) -> Iterator[OpenPage]:
    """Open pages of the test's own dashboard."""
    with opening(browser, site) as open:
        yield open


@pytest.fixture
def open_filled(browser: Browser, filled: Filled) -> Iterator[OpenPage]:
    """Open pages of the dashboard that all tests look at."""
    with opening(browser, filled.address) as open:
        yield open


@pytest.fixture
def open_filled_postgres(browser: Browser, filled_postgres: Filled) -> Iterator[OpenPage]:
    """The same on PostgreSQL."""
    with opening(browser, filled_postgres.address) as open:
        yield open


@contextmanager
def opening(browser: Browser, address: str) -> Iterator[OpenPage]:
    """Open pages; what the browser complains about fails the test, a status that was expected does not."""
    troubles: list[str] = []
    refused: set[int] = set()

    def note(message: ConsoleMessage) -> None:
        is_expected = any(f"with a status of {each} " in message.text for each in refused)
        if message.type in ("error", "warning") and not is_expected:
            troubles.append(f"console: {message.text} ({message.location.get('url')})")

    with ExitStack() as contexts:

        def open(path: str = "/", status: int = 200, later: int = 200, **options: Any) -> Page:
            refused.update({status, later} - {200})
            context = browser.new_context(base_url=address, **options)
            context.set_default_timeout(PATIENCE_S * 1000)
            contexts.callback(context.close)
            page = context.new_page()
            page.on("console", note)
            page.on("pageerror", lambda error: troubles.append(f"script: {error}"))
            page.on("dialog", lambda dialog: troubles.append(f"dialog: {dialog.message}"))
            answer = page.goto(path)
            assert answer is not None
            assert answer.status == status
            return page

        yield open
    assert troubles == []
