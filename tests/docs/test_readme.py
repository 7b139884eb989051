"""The README's examples and commands work as printed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.docs.newcomer import move_in, run
from tests.docs.snippets import ROOT, blocks

README = "README.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A newcomer's folder with the README's first block as app.py."""
    move_in(tmp_path)
    return tmp_path


def test_the_ten_lines_start_a_job_and_a_worker_runs_it(folder: Path) -> None:
    run(folder, sys.executable, "app.py")
    run(folder, "holdfast", "worker", "app:app", "--drain")
    jobs = json.loads(run(folder, "holdfast", "jobs", "list", "-o", "json"))
    assert [(job["type"], job["state"]) for job in jobs] == [("order.charge", "completed")]


def test_the_commands_work_as_printed(folder: Path) -> None:
    (printed,) = [each.text for each in blocks(README) if each.language == "sh"]
    run(folder, "bash", "-euo", "pipefail", "-c", printed)


def test_every_target_of_make_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = [line for each in blocks(README) for line in each.text.splitlines()]
    targets = {line.split()[1] for line in lines if line.startswith("make ")}
    assert targets == {"acceptance", "demo", "invoicing", "tenders", "test"}
    assert all(f"\n{target}: " in makefile for target in targets)


def test_every_link_and_picture_leads_somewhere() -> None:
    text = (ROOT / README).read_text(encoding="utf-8")
    places = re.findall(r"""(?:\]\(|src="|srcset=")([^)"#:]+)[)"]""", text)
    assert len(places) > 20
    assert [each for each in places if not (ROOT / each).exists()] == []


def test_the_first_picture_names_the_problem_in_everybodys_words() -> None:
    for page in (README, "docs/index.md"):
        picture = next(each.text for each in blocks(page) if each.language == "text")
        assert "dies" in picture
        assert not re.search(r"lease|token|fenc|claim|reaper", picture)


def test_it_is_read_in_a_few_minutes() -> None:
    assert (ROOT / README).stat().st_size < 6_600


def test_it_has_half_the_words_it_once_had() -> None:
    assert len((ROOT / README).read_text(encoding="utf-8").split()) <= 1_527 / 2
