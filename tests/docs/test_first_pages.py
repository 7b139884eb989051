"""The pages that people meet first say what each of them would otherwise find out by an error."""

from __future__ import annotations

import re

import pytest
from docs._ext.package_source import install_from_pypi

from holdfast.core.duration import format_duration
from holdfast.core.lease import Lease
from tests.docs.snippets import ROOT, Block, blocks, text_blocks

START = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/start").glob("*.md"))
FIRST = ("README.md", "docs/index.md", "docs/start/your-own-application.md")


@pytest.mark.parametrize("page", FIRST)
def test_a_first_page_says_how_long_a_job_may_run_and_how_to_allow_more(page: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert format_duration(Lease().timeout_ms) == "3m"
    assert re.search(r"(three|3) minutes", text)
    assert 'timeout="1h"' in text


def installations(found: list[Block]) -> list[str]:
    """The commands among the blocks that install Holdfast."""
    lines = [
        line for each in found if each.language == "console" for line in each.text.splitlines()
    ]
    return [line for line in lines if re.match(r"pip install .*(holdfast|\.\[)", line)]


@pytest.mark.parametrize("page", START)
def test_a_start_page_installs_from_the_checkout_until_the_package_is_published(page: str) -> None:
    first = next(each for each in blocks(page) if each.language in ("console", "sh"))
    if first.text.startswith("make demo"):
        return
    commands = installations(blocks(page))
    assert commands[0] in first.text
    for command in commands:
        assert command.startswith('pip install "../holdfast['), command


def test_no_page_installs_from_pypi_until_the_package_is_published() -> None:
    # It says how to install from a folder of wheels.
    pages = set((ROOT / "docs").rglob("*.md")) - {ROOT / "docs/start/install.md"}
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in sorted(pages)
        if "adr" not in path.parts
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"pip install [^`]*holdfast-", line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "page", ["docs/index.md", "docs/run/deploy.md", "docs/why/benchmarks.md", *START]
)
def test_one_setting_makes_every_page_install_from_pypi(page: str) -> None:
    published = install_from_pypi((ROOT / page).read_text(encoding="utf-8"))
    assert "../holdfast" not in published
    assert "not on PyPI" not in published
    for command in installations(text_blocks(published)):
        assert re.search(r'pip install "holdfast-jobs\[[\w,]+\]"', command), command
