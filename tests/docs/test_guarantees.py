"""Every promise names tests that exist."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.docs.snippets import ROOT

_NAMED = re.compile(r"`(test_\w+)`")


def named_tests() -> list[str]:
    """The test functions that the page names."""
    return sorted(
        set(_NAMED.findall((ROOT / "docs/why/guarantees.md").read_text(encoding="utf-8")))
    )


@cache
def written_tests() -> set[str]:
    """Every test function of the project, those of the conformance classes included."""
    folders = (ROOT / "tests", ROOT / "packages/holdfast-testing/src/holdfast_testing")
    sources = [
        path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py")
    ]
    return {name for source in sources for name in re.findall(r"def (test_\w+)\(", source)}


@pytest.mark.parametrize("name", named_tests())
def test_a_promise_is_tied_to_a_test(name: str) -> None:
    assert name in written_tests()
