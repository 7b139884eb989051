"""A real browser: the system's Chromium, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

# The shell is the same engine without the windows around it, at a third of the cost of a page.
_NAMES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)

# Chromium's own sandbox needs rights that root in a container does not have.
_AS_ROOT = ["--no-sandbox"]


def find_chromium() -> str | None:
    """Return where the system's Chromium is, if it has one."""
    return next((path for path in map(shutil.which, _NAMES) if path), None)


@contextmanager
def launched(path: str) -> Iterator[Browser]:
    """Run a browser without a screen."""
    with sync_playwright() as playwright:
        arguments = _AS_ROOT if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()
