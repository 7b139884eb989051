"""What guides newcomers through the code names files that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "packages" / "holdfast-jobs" / "src" / "holdfast"
_PATH = re.compile(r"`((?:[a-z_]+/)+(?:[a-z_]+\.(?:py|sql))?)`")
_NUMBERED = re.compile(r"^\| \d+ \| `(.+?)` \|", re.MULTILINE)
_HOPS = (
    ("client/enqueue.py", "write", "client/client.py"),
    ("client/enqueue.py", "insert_new", "storage/store/jobs.py"),
    ("storage/store/jobs.py", "job_insert_new", "storage/postgres/sql/job.sql"),
    ("worker/claimer.py", "plan", "worker/plain_claims.py"),
    ("worker/plain_claims.py", "claim", "storage/store/jobs.py"),
    ("storage/store/jobs.py", "job_claim", "storage/postgres/sql/job.sql"),
    ("worker/slots.py", "run", "worker/executor.py"),
    ("worker/executor.py", "resolve", "worker/resolve_outcome.py"),
    ("worker/slots.py", "submit", "worker/completer.py"),
    ("worker/completer.py", "finish", "storage/store/jobs.py"),
    ("storage/store/jobs.py", "job_complete", "storage/postgres/sql/job.sql"),
)
"""What leads from one file of a job's life to the next: the claimer's backlog, which slots empty, is the only gap."""
_LIMITED_HOPS = (
    ("worker/claimer.py", "plan", "worker/limited_claims.py"),
    ("worker/limited_claims.py", "claim_limited", "storage/store/jobs.py"),
    ("storage/store/jobs.py", "limit_claim", "storage/postgres/sql/limit.sql"),
)
"""Where the way of a job with a limit differs."""
_ELSEWHERE = ("tests/", "docs/", "sql/", "packages/")


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/understand/inside.md"])
def test_every_file_that_a_guide_names_exists(page: str) -> None:
    named = set(_PATH.findall((ROOT / page).read_text()))
    missing = [
        each for each in named if not each.startswith(_ELSEWHERE) and not (SOURCE / each).exists()
    ] + [
        each
        for each in named
        if each.startswith(("tests/", "packages/")) and not (ROOT / each).exists()
    ]
    assert missing == []
    assert len(named) > 20


def test_a_job_is_followed_from_its_start_to_its_outcome_in_ten_files() -> None:
    listed = _NUMBERED.findall((ROOT / "docs/understand/inside.md").read_text())
    assert len(listed) <= 10
    assert set(listed) == {path for start, _, end in _HOPS for path in (start, end)}
    assert [hop for hop in _HOPS if not _is_hop(*hop)] == []


def test_a_limit_takes_one_file_s_place_and_adds_one() -> None:
    page = (ROOT / "docs/understand/inside.md").read_text()
    passage = page[page.index("With a limit, ") : page.index("With options of `start`")]
    listed = set(_NUMBERED.findall(page))
    other = {end for _, _, end in _LIMITED_HOPS} - listed
    assert set(_PATH.findall(passage)) - listed == other
    assert len(other) == 2
    assert [hop for hop in _LIMITED_HOPS if not _is_hop(*hop)] == []


def _is_hop(start: str, name: str, end: str) -> bool:
    """Whether a file names what the other one defines."""
    tree = ast.parse((SOURCE / start).read_text())
    if end.endswith(".sql"):
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        return name in texts and f"-- name: {name}\n" in (SOURCE / end).read_text()
    defined = {
        node.name
        for node in ast.walk(ast.parse((SOURCE / end).read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return name in used and name in defined
