"""What a machine lacks is said at the end of a run, once, with its cost."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.support.absent import report_absent

def pytest_terminal_summary(terminalreporter):
    report_absent(terminalreporter)
"""
TESTS = """
import pytest
from tests.support.absent import skip_because_absent

@pytest.mark.parametrize("number", [1, 2])
def test_needs_a_teapot(number):
    skip_because_absent("a teapot", "Put the kettle on")

def test_is_skipped_for_another_reason():
    pytest.skip("not today")
"""


def run_tests(folder: Path) -> str:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_tea.py").write_text(TESTS)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={folder}", folder],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_an_absence_is_named_once_with_the_number_of_tests_it_cost(tmp_path: Path) -> None:
    summary = run_tests(tmp_path).split("NOT TESTED on this machine")[1]
    assert summary.count("a teapot. Put the kettle on (2 tests skipped)") == 1
    assert "not today" not in summary
