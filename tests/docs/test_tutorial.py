"""The tutorial works as printed, from an empty folder to its last test, on both databases."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.docs.newcomer import PATIENCE_S
from tests.docs.snippets import blocks
from tests.docs.walk import Walk, walking

PAGE = "docs/start/tutorial.md"

pytestmark = pytest.mark.timeout(2 * PATIENCE_S)


@pytest.fixture(params=["sqlite", "postgres"])
def variables(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of a reader: the page's default, or the address of their server."""
    if request.param == "sqlite":
        return {}
    return {"HOLDFAST_URL": str(request.getfixturevalue("postgres_url"))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder."""
    folder = tmp_path / "billing-service"
    folder.mkdir()
    return folder


def follow(reader: Walk) -> list[str]:
    """Follow the page to its end; return what each block printed."""
    return [reader.follow(block) for block in blocks(PAGE)]


def check(folder: Path, printed: list[str]) -> None:
    """Compare what happened with what the page says."""
    (checked,) = [each for each in printed if "operations" in each]
    assert "No new upgrade operations detected" in checked
    (migration,) = (folder / "migrations" / "versions").glob("*_invoices.py")
    written = migration.read_text(encoding="utf-8")
    assert "create_table('invoices'" in written
    assert "holdfast" not in written
    pending, ready, failed = (each for each in printed if '"status"' in each)
    assert "HTTP/1.1 202 Accepted" in pending
    assert "retry-after: 1" in pending
    assert '{"status":"PENDING","retryAfterMs":1000}' in pending
    answer = json.loads(ready)
    assert answer["status"] == "READY"
    assert answer["downloadUrl"].startswith("/files/invoices/2026-001.pdf?expires=")
    assert "%PDF-1.7" in printed
    assert (folder / "2026-001.pdf").stat().st_size > 1_000
    assert "HTTP/1.1 422 " in failed
    assert "there is no template for 'tlh'" in failed
    assert any("4 passed" in each for each in printed)


def test_the_tutorial_works_as_printed(folder: Path, variables: dict[str, str]) -> None:
    with walking(folder, variables) as reader:
        printed = follow(reader)
        assert len(reader.servers) == 2
    check(folder, printed)
    redrive(Walk(folder, variables))


def redrive(reader: Walk) -> None:
    """Add the title that the page adds, and run the failed job again."""
    module = reader.folder / "billing" / "pdf.py"
    before = re.search("^TITLES.*\n", module.read_text(encoding="utf-8"), re.MULTILINE)
    (after,) = (each.text for each in blocks(PAGE) if each.text.startswith("TITLES"))
    (command,) = (each.text for each in blocks(PAGE) if "dead redrive" in each.text)
    assert before is not None
    fixed = module.read_text(encoding="utf-8").replace(before[0], after)
    module.write_text(fixed, encoding="utf-8")
    reader.type(command)
    reader.type("holdfast worker billing.pdf:jobs --drain")
    states = json.loads(reader.type("holdfast jobs list -o json"))
    assert [each["state"] for each in states] == ["completed", "completed"]


def test_alembic_would_drop_the_tables_of_holdfast_without_the_filter(folder: Path) -> None:
    with walking(folder, {}) as reader:
        for block in blocks(PAGE):
            reader.follow(block)
            if "alembic upgrade head" in block.text:
                break
        env = folder / "migrations" / "env.py"
        unfiltered = env.read_text(encoding="utf-8").replace("include_name=include_name,", "")
        env.write_text(unfiltered, encoding="utf-8")
        refused = reader.attempt("alembic check")
    assert refused.returncode != 0
    assert "remove_table" in refused.stdout + refused.stderr
    assert "holdfast_job" in refused.stdout + refused.stderr
