"""The page about benchmarks names every figure that is measured, and none that is not."""

from __future__ import annotations

import re

from tests.bench.figures import FIGURES
from tests.docs.snippets import ROOT


def test_the_page_names_the_figures_of_the_bench() -> None:
    page = (ROOT / "docs/why/benchmarks.md").read_text(encoding="utf-8")
    first_cells = re.findall(r"^\| (`.+?) \|", page, re.MULTILINE)
    named = {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}
    assert named == {name for names in FIGURES.values() for name in names}
