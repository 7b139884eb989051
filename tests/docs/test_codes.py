"""Error codes on pages are codes that exist."""

from __future__ import annotations

import re

import pytest

from holdfast.extensions import explain_codes
from tests.docs.snippets import ROOT, written_pages

PAGES = ("README.md", *written_pages())


@pytest.mark.parametrize("page", PAGES)
def test_every_error_code_on_a_page_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert set(re.findall(r"\bHF\d{3}\b", text)) <= set(explain_codes())
