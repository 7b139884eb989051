"""Tables that people wrote agree with the code, and with each other."""

from __future__ import annotations

import re
import tomllib

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


def extras_of(path: str) -> dict[str, list[str]]:
    """The extras of a project and what each requires."""
    project: dict[str, dict[str, list[str]]] = tomllib.loads(page(path))["project"]
    return project["optional-dependencies"]


def test_the_table_of_extras_has_each_one_and_those_in_all_come_before_it() -> None:
    rows = page("docs/start/install.md").partition("| extra | for |")[2].partition("\n\n")[0]
    listed = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.+?) \|", rows, re.MULTILINE)))
    extras = extras_of("packages/holdfast-jobs/pyproject.toml")
    (in_all,) = extras["all"]
    assert sorted(listed) == sorted(extras)
    assert set(listed[: listed.index("all")]) == set(in_all.partition("[")[2].strip("]").split(","))
    marked = re.findall(r"^\| `(\w+)` .*not in `all`", rows, re.MULTILINE)
    assert marked == listed[listed.index("all") + 1 :]


def test_a_checkout_has_the_same_extras_as_the_package_and_the_same_in_all() -> None:
    extras = extras_of("packages/holdfast-jobs/pyproject.toml")
    of_checkout = extras_of("pyproject.toml")
    assert of_checkout.keys() == extras.keys()
    in_all = extras["all"][0].partition("[")[2].strip("]").split(",")
    for extra in in_all:
        ours = {each for each in extras[extra] if each.startswith("holdfast-")}
        installed = " ".join(of_checkout["all"])
        assert all(f"{each} @" in installed for each in ours), extra
        assert ours or re.search(rf"\b{extra}\b", of_checkout["all"][0]), extra
    named = set(re.findall(r"(holdfast-\w+) @", " ".join(of_checkout["all"])))
    beside = {"holdfast-jobs", "holdfast-django", "holdfast-chaos", "holdfast-bench"}
    assert named | beside == {each.name for each in (ROOT / "packages").iterdir()}


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
