"""The reference is whole, and a gap fails the build."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypedDict

import click
import msgspec
import pytest
from docs._ext.reference import (
    PARTS,
    api,
    commands,
    errors,
    events,
    filled,
    options,
    schema,
    settings,
)
from docs._ext.reference.undocumented import Undocumented
from sphinx.application import Sphinx
from sphinx.errors import SphinxError

import holdfast
from holdfast.app.registration import CycleOptions
from holdfast.cli.lazy import HelpCommand
from holdfast.client.enqueue import PublishOptions
from holdfast.client.start_options import StartOptions
from holdfast.core.registry import JobOptions
from holdfast.extensions import explain_codes
from holdfast.observe.logging import CATALOGUE
from holdfast.settings import GROUPS, Integer, setting
from tests.docs.snippets import DOCS


@pytest.mark.parametrize("part", sorted(PARTS))
def test_every_part_is_shown_on_a_page(part: str) -> None:
    pages = [page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")]
    assert sum(f"<!-- reference: {part} -->" in page for page in pages) == 1


def test_a_part_that_does_not_exist_is_refused() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        filled("<!-- reference: nonsense -->")


def test_the_errors_say_what_explain_says() -> None:
    page = errors.page()
    for each in explain_codes().values():
        assert f"### {each.code} · {each.name}" in page
        assert each.fix in page


def test_the_settings_show_default_range_and_fallback() -> None:
    page = settings.page()
    assert (
        "| `OUTBOX_LEASE_DURATION_MS` | `60000` | a whole number of milliseconds, at least 100 |"
        in page
    )
    assert "| `HOLDFAST_SLOTS` | `OUTBOX_CONCURRENCY`, else `10` |" in page


@dataclass(frozen=True, slots=True)
class Wordless:
    """A group with a setting that says nothing."""

    PREFIX: ClassVar[str] = "WORDLESS_"

    number: int = setting(Integer(), 1, "")


def test_a_setting_without_text_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "GROUPS", {**GROUPS, "wordless": Wordless})
    with pytest.raises(SphinxError, match="WORDLESS_NUMBER"):
        build(tmp_path, "settings")


def test_an_event_without_text_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = msgspec.structs.replace(CATALOGUE["job_failed"], name="silent", text="")
    monkeypatch.setitem(CATALOGUE, "silent", silent)
    with pytest.raises(Undocumented, match="silent"):
        events.page()


def test_every_option_of_a_decorator_has_a_sentence() -> None:
    for title, option, meaning in (
        ("@app.job and @app.on", "timeout", "three leases"),
        ("@app.cycle", "missed", "caught up"),
        ("app.start", "priority", "most urgent"),
        ("app.publish", "after", "from now"),
    ):
        section = options.page().partition(f"## {title}\n")[2].partition("\n## ")[0]
        (row,) = (each for each in section.splitlines() if each.startswith(f"| `{option}` |"))
        assert meaning in row
    assert '`"loop" \\| "thread" \\| "process"`' in options.page()


class Wordy(TypedDict, total=False):
    """Options of which one says nothing."""

    said: int
    """With a sentence."""

    silent: int


def test_an_option_without_text_fails() -> None:
    with pytest.raises(Undocumented, match=r"Wordy without text: silent$"):
        options.options_of(Wordy)


def test_an_error_without_a_fix_fails() -> None:
    known = explain_codes()
    with pytest.raises(Undocumented, match="HF017"):
        errors.entries({**known, "HF017": known["HF017"]._replace(fix="")})


@pytest.mark.parametrize(
    ("options", "gap"),
    [
        ({"examples": ("holdfast x",)}, "without help: planted"),
        ({"help": "Do it."}, "without examples: planted"),
        (
            {"help": "Do it.", "examples": ("holdfast x",), "params": [click.Option(["--silent"])]},
            "without help: planted --silent",
        ),
    ],
)
def test_a_command_that_explains_nothing_fails(options: dict[str, Any], gap: str) -> None:
    with pytest.raises(Undocumented, match=gap):
        commands.tree(HelpCommand("planted", **options), "planted")


def test_a_table_without_a_purpose_fails() -> None:
    made = "".join(f"create table holdfast.{name} (\n" for name in schema.PURPOSES)
    assert schema.purposes(made)
    with pytest.raises(Undocumented, match="planted"):
        schema.purposes(f"{made}create table holdfast.planted (")


def test_a_public_name_that_no_section_shows_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.__all__", [*holdfast.__all__, "planted"])
    with pytest.raises(Undocumented, match=r"holdfast\.planted"):
        api.page()


def build(folder: Path, part: str) -> None:
    """Build a site of one page."""
    source = folder / "source"
    source.mkdir()
    (source / "conf.py").write_text('extensions = ["myst_parser", "docs._ext.reference"]\n')
    (source / "index.md").write_text(f"# Page\n\n<!-- reference: {part} -->\n")
    out = folder / "out"
    Sphinx(source, source, out, out, "dummy", status=None, warning=io.StringIO()).build()


@pytest.mark.parametrize("kind", [JobOptions, StartOptions, PublishOptions, CycleOptions])
def test_every_option_is_used_on_a_page_that_explains_it(kind: type[object]) -> None:
    folders = ("start", "do", "understand", "run")
    pages = [page for folder in folders for page in (DOCS / folder).glob("*.md")]
    text = "\n".join(each.read_text(encoding="utf-8") for each in pages)
    assert [each for each in kind.__annotations__ if not re.search(rf"\b{each}=", text)] == []
