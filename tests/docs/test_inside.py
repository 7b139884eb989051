"""What guides newcomers through the code names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "packages" / "holdfast-jobs" / "src" / "holdfast"
_PATH = re.compile(r"`((?:[a-z_]+/)+(?:[a-z_]+\.(?:py|sql))?)`")
_ELSEWHERE = ("tests/", "docs/", "sql/", "packages/")


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/understand/inside.md"])
def test_every_file_that_a_guide_names_exists(page: str) -> None:
    named = set(_PATH.findall((ROOT / page).read_text()))
    missing = [
        each for each in named if not each.startswith(_ELSEWHERE) and not (SOURCE / each).exists()
    ] + [
        each
        for each in named
        if each.startswith(("tests/", "packages/")) and not (ROOT / each).exists()
    ]
    assert missing == []
    assert len(named) > 20
