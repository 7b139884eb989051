"""The pages that people meet first say what each of them would otherwise find out by an error."""

from __future__ import annotations

import re

import pytest

from holdfast.core.duration import format_duration
from holdfast.core.lease import Lease
from tests.docs.snippets import ROOT

FIRST = ("README.md", "docs/index.md", "docs/start/your-own-application.md")


@pytest.mark.parametrize("page", FIRST)
def test_a_first_page_says_how_long_a_job_may_run_and_how_to_allow_more(page: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert format_duration(Lease().timeout_ms) == "3m"
    assert re.search(r"(three|3) minutes", text)
    assert 'timeout="1h"' in text
