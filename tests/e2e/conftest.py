"""A browser for the package, a served dashboard for each test, and pages that must not complain."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from playwright.sync_api import expect

from holdfast.app import Holdfast
from holdfast_archive import add_archive
from tests.cli.scene import Scene
from tests.e2e.afternoon import Afternoon
from tests.e2e.chromium import find_chromium, launched
from tests.e2e.serving import served
from tests.e2e.tabs import OpenPage, Tabs, opening
from tests.support.absent import skip_because_absent
from tests.support.until import PATIENCE_S

expect.set_options(timeout=PATIENCE_S * 1000)

# For what happens in the browser. That pages send every command to both stores, and show what both answer, is tested
# without one: in tests/contract/test_surfaces.py and tests/web.
on_one_store = pytest.mark.parametrize("url", ["sqlite_url"], indirect=True)


# For the package, not the session: while Playwright runs, this thread has an event loop, which others must not meet.
@pytest.fixture(scope="package")
def tabs() -> Iterator[Tabs]:
    """Pages of Chromium, without a screen."""
    path = find_chromium()
    if path is None:
        skip_because_absent("Chromium, so the dashboard", "Run: make setup-system")
    with launched(path) as browser:
        yield Tabs(browser)


@pytest.fixture(scope="package")
def listening() -> Iterator[socket.socket]:
    """The address at which each test serves its own dashboard: pages can go on from one test to the next."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        yield listening


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
def filled_postgres(postgres_url: str, listening: socket.socket) -> Iterator[Filled]:
    """The same on PostgreSQL."""
    with _filled(postgres_url, listening) as found:
        yield found


@contextmanager
def _filled(url: str, listening: socket.socket | None = None) -> Iterator[Filled]:
    app = Holdfast(url, open_types=True)
    # Nothing is read there, but pages offer to do so.
    add_archive(app, "file:///srv/archive")
    app.migrate()
    afternoon = Afternoon(app.database)
    afternoon.fill()
    with served(app, listening) as address:
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
def site(app: Holdfast, url: str, listening: socket.socket) -> Iterator[str]:
    """Where the dashboard is."""
    behind = Holdfast(url, open_types=True)
    with served(behind, listening) as address:
        yield address
    behind.close()


@pytest.fixture
def open_page(tabs: Tabs, site: str) -> Iterator[OpenPage]:
    """Open pages of the test's own dashboard."""
    with opening(tabs, site) as open:
        yield open


@pytest.fixture
def open_filled(tabs: Tabs, filled: Filled) -> Iterator[OpenPage]:
    """Open pages of the dashboard that all tests look at."""
    with opening(tabs, filled.address) as open:
        yield open


@pytest.fixture
def open_filled_postgres(tabs: Tabs, filled_postgres: Filled) -> Iterator[OpenPage]:
    """The same on PostgreSQL."""
    with opening(tabs, filled_postgres.address) as open:
        yield open
