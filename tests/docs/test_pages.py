"""Every page of the documentation works as printed, from top to bottom.

A block of Python or TOML that names its file is written there, other Python is run; blocks of `sh` are run as printed.
What needs servers or never ends stands in `console` blocks and is only parsed, by test_commands.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.docs.newcomer import PATIENCE_S, move_in, run
from tests.docs.snippets import Block, blocks, written_pages

OWN_TESTS = {
    "docs/do/alembic.md",
    "docs/do/extensions.md",
    "docs/do/testing.md",
    "docs/start/django-tasks.md",
    "docs/start/django.md",
    "docs/start/tutorial.md",
    "docs/start/web-frameworks.md",
}
"""Pages that a test of their own runs."""


def runnable(page: str) -> list[Block]:
    """The blocks of a page that can be tried."""
    return [each for each in blocks(page) if each.language in ("python", "sh", "toml")]


PAGES = [page for page in written_pages() if page not in OWN_TESTS and runnable(page)]


@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_works_as_printed(page: str, tmp_path: Path) -> None:
    move_in(tmp_path)
    modules = []
    for block in runnable(page):
        if block.language == "sh":
            run(tmp_path, "bash", "-euo", "pipefail", "-c", block.text)
        elif block.file is None:
            run(tmp_path, sys.executable, "-c", block.text)
        else:
            file = tmp_path / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
            if block.language == "python":
                modules.append(block.file.removesuffix(".py").replace("/", "."))
    if modules:
        # The last one first: what sets up the others comes at the end of a page.
        run(tmp_path, sys.executable, "-c", f"import {', '.join(reversed(modules))}")
