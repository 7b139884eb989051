"""Pages that tests take in turn: to open one costs the browser several times as much as to go on in one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Error, Page

from tests.support.until import PATIENCE_S

OpenPage = Callable[..., Page]

SCREEN = {"width": 1280, "height": 720}
# What a page cannot take on later; one that needs it is the test's own.
OF_A_NEW_PAGE = {"java_script_enabled", "is_mobile", "has_touch", "timezone_id", "permissions"}


class Complaints:
    """What the browser complains about, apart from the statuses a test expects."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.expected: set[int] = set()

    def listen(self, page: Page) -> Callable[[], None]:
        """Listen to a page; what is returned ends it."""
        listeners: dict[Any, Any] = {
            "console": self._on_console,
            "pageerror": lambda error: self.found.append(f"script: {error}"),
            "dialog": self._on_dialog,
        }
        for event, listener in listeners.items():
            page.on(event, listener)

        def end() -> None:
            for event, listener in listeners.items():
                page.remove_listener(event, listener)

        return end

    def _on_console(self, message: ConsoleMessage) -> None:
        is_expected = any(f"with a status of {each} " in message.text for each in self.expected)
        if message.type in ("error", "warning") and not is_expected:
            self.found.append(f"console: {message.text} ({message.location.get('url')})")

    def _on_dialog(self, dialog: Dialog) -> None:
        self.found.append(f"dialog: {dialog.message}")
        dialog.dismiss()


class Tabs:
    """The pages of a browser that are open and that no test uses, by the address they are for."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._idle: dict[str, list[Page]] = {}

    def take(self, address: str, **options: Any) -> Page:
        """Return a page like a new one, of its size and scheme."""
        is_own = not OF_A_NEW_PAGE.isdisjoint(options)
        idle = [] if is_own else self._idle.get(address, [])
        page = idle.pop() if idle else self._open(address, **options if is_own else {})
        page.set_viewport_size(options.get("viewport", SCREEN))
        page.emulate_media(color_scheme=options.get("color_scheme", "light"))
        return page

    def give_back(self, address: str, page: Page, **options: Any) -> None:
        """Leave a page to the next test, without anything this one left in it; close what cannot be reused."""
        if not OF_A_NEW_PAGE.isdisjoint(options) or not _is_cleared(page, address):
            page.context.close()
            return
        self._idle.setdefault(address, []).append(page)

    def _open(self, address: str, **options: Any) -> Page:
        context = self._browser.new_context(base_url=address, **options)
        context.set_default_timeout(PATIENCE_S * 1000)
        return context.new_page()


def _is_cleared(page: Page, address: str) -> bool:
    """Whether a page could be made like new: nothing shown, stored, routed or pointed at."""
    try:
        for each in page.context.pages:
            if each is not page:
                each.close()
        page.unroute_all()
        page.goto("about:blank")
        page.mouse.move(0, 0)
        page.context.clear_cookies()
        session = page.context.new_cdp_session(page)
        session.send("Storage.clearDataForOrigin", {"origin": address, "storageTypes": "all"})
        session.detach()
    except Error:
        return False
    return True


@contextmanager
def opening(tabs: Tabs, address: str) -> Iterator[OpenPage]:
    """Open pages; what the browser complains about fails the test, a status that was expected does not."""
    complaints = Complaints()
    ends: list[Callable[[], None]] = []

    def open(path: str = "/", status: int = 200, later: int = 200, **options: Any) -> Page:
        complaints.expected.update({status, later} - {200})
        page = tabs.take(address, **options)
        ends.append(lambda: tabs.give_back(address, page, **options))
        ends.append(complaints.listen(page))
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == status
        return page

    try:
        yield open
    finally:
        for end in reversed(ends):
            end()
    assert complaints.found == []
