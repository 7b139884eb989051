"""The extension on the documentation's page, installed as its reader would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.extensions import Extension
from holdfast.settings.load import PREFIXES
from tests.docs.newcomer import PATIENCE_S
from tests.docs.snippets import ROOT, blocks

PAGE = "docs/do/extensions.md"
PRINT_ROUTES = """
from holdfast.web.openapi import document
print(*document()["paths"])
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the page's package is installed."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("target")
    for block in blocks(PAGE):
        if block.file is not None:
            file = source / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return target


def python(installed: Path | None, folder: Path, *words: str, **variables: str) -> str:
    """Run a fresh interpreter where the extension is installed: one that runs already knows what it found."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(PREFIXES)}
    path = (str(installed or ""), environment.get("PYTHONPATH", ""))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def holdfast(installed: Path | None, folder: Path, *words: str, **variables: str) -> str:
    """Run a command there."""
    return python(installed, folder, "-m", "holdfast", *words, **variables)


def test_its_command_is_in_the_help_and_counts(installed: Path, tmp_path: Path) -> None:
    assert "Show how many jobs are due." in holdfast(installed, tmp_path, "--help")
    holdfast(installed, tmp_path, "migrate")
    found = holdfast(installed, tmp_path, "backlog", "-o", "json")
    assert json.loads(found) == {"due": 0}


def test_its_setting_is_read_shown_and_known(installed: Path, tmp_path: Path) -> None:
    limit = {"HOLDFAST_BACKLOG_LIMIT": "7"}
    shown = holdfast(installed, tmp_path, "config", "show", "--origin", **limit)
    (line,) = [each for each in shown.splitlines() if "HOLDFAST_BACKLOG_LIMIT" in each]
    assert line.split()[1:] == ["7", "env"]


def test_its_check_is_one_of_the_doctor_s(installed: Path, tmp_path: Path) -> None:
    holdfast(installed, tmp_path, "migrate")
    findings = json.loads(holdfast(installed, tmp_path, "doctor", "-o", "json"))
    assert "backlog" in {each["check"] for each in findings}


def test_its_route_is_served_and_described(installed: Path, tmp_path: Path) -> None:
    printed = python(installed, tmp_path, "-c", PRINT_ROUTES)
    assert "/api/v1/backlog" in printed.split()


def test_without_it_nothing_of_it_is_known(tmp_path: Path) -> None:
    assert "backlog" not in holdfast(None, tmp_path, "--help")


def test_the_page_lists_every_field_of_an_extension() -> None:
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / PAGE).read_text("utf-8"), re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(listed) == sorted(Extension._fields)
