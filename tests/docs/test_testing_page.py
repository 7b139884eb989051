"""The page about testing shows tests that pass."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.docs.newcomer import move_in, run
from tests.docs.snippets import blocks


def test_the_tests_on_the_page_pass(tmp_path: Path) -> None:
    move_in(tmp_path)
    for block in blocks("docs/do/testing.md"):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    assert "3 passed" in run(
        tmp_path, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"
    )
