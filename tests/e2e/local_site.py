"""The page of an application in a real browser, with everything behind it that its local command starts."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.e2e.chromium import find_chromium, launched
from tests.e2e.tabs import OpenPage, Tabs, opening
from tests.support.absent import skip_because_absent


@contextmanager
def running_site(place: Path, environment: Mapping[str, str], *words: str) -> Iterator[str]:
    """Run `python -m …` in a directory; yield the address of its page once everything runs."""
    with subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=place,
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield read_addresses(process.stdout)["page"].rstrip("/")
        process.terminate()


def read_addresses(lines: IO[str]) -> dict[str, str]:
    """Read what the command prints until everything runs; return the addresses."""
    found: dict[str, str] = {}
    for line in lines:
        shown = re.match(r"  ✓ (\w+) +(\S+)", line)
        if shown is not None:
            found[shown[1]] = shown[2]
        if "Ctrl-C stops everything" in line:
            return found
    raise AssertionError("the command ended")


@pytest.fixture(scope="module")
def tabs() -> Iterator[Tabs]:
    """Pages of Chromium, without a screen; for one module, as other tests there have event loops of their own."""
    path = find_chromium()
    if path is None:
        skip_because_absent("Chromium, so the pages of applications", "Run: make setup-system")
    with launched(path) as browser:
        yield Tabs(browser)


@pytest.fixture
def open_page(tabs: Tabs, site: str) -> Iterator[OpenPage]:
    """Open pages of the application at `site`, a fixture of the module."""
    with opening(tabs, site) as open:
        yield open
