"""The application's README works as printed, and what it names exists."""

import re
from pathlib import Path

import pytest
from apps.invoicing.tests.conftest import SOURCE, run_command
from apps.invoicing.tests.test_variables import OWN
from tests.docs.snippets import ROOT, blocks
from tests.docs.walk import walking

HOME = Path(__file__).parents[1]
README = (HOME / "README.md").read_text(encoding="utf-8")


@pytest.mark.timeout(600)
def test_the_readme_works_as_printed(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    variables = {"PYTHONPATH": str(SOURCE)}
    if url.startswith("postgresql"):
        variables["HOLDFAST_URL"] = url
    with walking(folder, variables) as reader:
        printed = "".join(reader.follow(block) for block in blocks("apps/invoicing/README.md"))
        assert len(reader.servers) == 2
    assert "nordlicht-demo" in printed
    assert (folder / "invoice.pdf").read_bytes().startswith(b"%PDF-")
    (mail,) = (folder / "invoicing-mail").glob("*.eml")
    assert "Content-Type: application/pdf" in mail.read_text()
    assert mail.name in printed


async def test_the_command_that_runs_it_all_has_the_options_shown(tmp_path: Path) -> None:
    shown = re.findall(r'^make invoicing ARGS="(.*)"', README, re.MULTILINE)
    code, options, _ = await run_command(
        tmp_path, "sqlite:///unused.db", "apps.invoicing.local", "--help"
    )
    assert code == 0
    assert len(shown) == 3
    assert [
        each for each in " ".join(shown).split() if not each.isdigit() and each not in options
    ] == []
    assert "\ninvoicing: " in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_every_variable_of_the_application_is_in_the_readme() -> None:
    text = "".join(each.read_text(encoding="utf-8") for each in SOURCE.rglob("*.py"))
    read = OWN | set(re.findall(r'"(INVOICING_\w+)"', text))
    assert {name for name in read if f"`{name}`" not in README} == set()


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert len(links) > 20
    assert [each for each in links if not (HOME / each).resolve().is_relative_to(ROOT)] == []
    assert [each for each in links if not (HOME / each).exists()] == []


def test_what_a_pattern_names_is_where_it_says() -> None:
    rows = re.findall(r"`(\w+)`(?: and `(\w+)`)? in \[\w+\.py\]\(([\w/.]+)\)", README)
    assert len(rows) > 8
    for *names, file in rows:
        text = (HOME / file).read_text(encoding="utf-8")
        assert [
            each
            for each in names
            if f"def {each}(" not in text and f"{each} = " not in text
            if each
        ] == []
