"""The page about testing shows tests that pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.snippets import python_blocks


def test_the_tests_on_the_page_pass(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(python_blocks("README.md")[0], encoding="utf-8")
    for name, block in zip(
        ("conftest.py", "test_app.py"), python_blocks("docs/testing.md"), strict=True
    ):
        (tmp_path / name).write_text(block, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
