"""Texts use the words that their readers would: a list of those that were replaced, and what replaced them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.snippets import ROOT

REPLACED = {
    r"mend(s|ed|ing)?": "fix",
    r"work(s|ed)? off": "process",
    r"youngest": "newest, latest",
    r"for ever": "forever",
    r"set-up": "setup",
    r"misspelt": "misspelled",
    r"deeds?": "change, entry",
    r"whoever": "the one that; a process, a caller",
    r"somebody('s)?": "another process, another transaction",
    r"(is|are|was|were) told": "learns, gets, is notified",
    r"stands(?! in for)": "is, holds, applies",
    r"is heeded": "is honoured",
    r"made up for": "caught up",
    r"go on without asking": "skip confirmation",
    r"\d+ in all": "in total",
}
"""A pattern, and the word instead."""

READ = ("README.md", "CONTRIBUTING.md", "docs", "src", "apps")
KINDS = {".html", ".js", ".md", ".py", ".sql", ".txt"}
APPLIED = "migrations"
"""A migration that was applied keeps its text: databases remember its checksum."""


def texts() -> Iterator[Path]:
    """Every file with words for people: pages, messages, help, docstrings and comments."""
    for name in READ:
        found = ROOT / name
        for path in [found] if found.is_file() else sorted(found.rglob("*")):
            parts = path.relative_to(ROOT).parts
            if path.suffix in KINDS and not {APPLIED, "_build", "tests"} & set(parts):
                yield path


@pytest.mark.parametrize("pattern", REPLACED)
def test_a_word_that_was_replaced_does_not_come_back(pattern: str) -> None:
    wanted = re.compile(rf"\b{pattern}\b", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()[:100]}"
        for path in texts()
        for line in path.read_text(encoding="utf-8").splitlines()
        if wanted.search(line)
    ]
    assert found == [], f"write: {REPLACED[pattern]}"
