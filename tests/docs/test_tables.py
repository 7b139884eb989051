"""Tables that people wrote agree with the code, and with each other."""

from __future__ import annotations

import re

from holdfast import Holdfast
from holdfast.scheduler.doctor.checks import run_checks
from holdfast.settings import read_settings
from holdfast_bench.catalogue import NAMES
from tests.docs.snippets import ROOT


def page(path: str) -> str:
    """The text of a page."""
    return (ROOT / path).read_text(encoding="utf-8")


def compared(path: str) -> list[str]:
    """The rows of a page's tables of queues, ours and others'."""
    return re.findall(r"^\| \S+ \| (?:defaults|best) \|.*$", page(path), re.MULTILINE)


def test_the_page_names_the_figures_of_the_bench() -> None:
    first_cells = re.findall(r"^\| (`.+?) \|", page("docs/why/benchmarks.md"), re.MULTILINE)
    named = {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}
    assert named == set(NAMES)


def test_three_rows_of_the_benchmarks_are_quoted_in_the_readme_and_none_elsewhere() -> None:
    quoted = compared("README.md")
    assert len(quoted) == 3
    assert quoted[0].startswith("| **holdfast** |")
    assert set(quoted) < set(compared("docs/why/benchmarks.md"))
    assert compared("docs/why/comparison.md") == []


async def test_the_checklist_names_what_doctor_looks_at(postgres_url: str, sqlite_url: str) -> None:
    looked_at = set()
    for url in (postgres_url, sqlite_url):
        app = Holdfast(url)
        app.migrate()
        looked_at |= {each.check for each in await run_checks(app.database, read_settings({}))}
        await app.aclose()
    cells = re.findall(r"^\| (`.+?) \|", page("docs/run/checklist.md"), re.MULTILINE)
    # Of these there is something to say only where a part is missing.
    partial = {"driver", "server"}
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == looked_at | partial


def test_every_decision_has_its_row() -> None:
    decisions = {each.name for each in (ROOT / "docs/adr").glob("0*.md")}
    rows = re.findall(r"^\| \[\d{4}\]\((\S+?)\) \|", page("docs/adr/README.md"), re.MULTILINE)
    assert sorted(rows) == rows
    assert set(rows) == decisions
