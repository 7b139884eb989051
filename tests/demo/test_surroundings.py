"""The first two commands, wherever they are started: in the background, without a terminal, with a home of nobody's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.snippets import ROOT
from tests.support.terminal import PATIENCE_S
from tests.support.until import TEST_TIMEOUT_S

SHELL = ("sh", "-c")
SURROUNDINGS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "in the background": ((*SHELL, '"$@" & wait $!', "sh"), {}),
    "nohup": (("nohup",), {}),
    "setsid": (("setsid", "--wait"), {}),
    "a dumb terminal": ((), {"TERM": "dumb"}),
    "closed stdin": ((*SHELL, 'exec "$@" <&-', "sh"), {}),
    "umask 077": ((*SHELL, 'umask 077; exec "$@"', "sh"), {}),
    # Not even root can write below it.
    "a home that cannot be written": ((), {"HOME": "/dev/null"}),
}
DEMO = ("-m", "holdfast_demo", "--headless", "--exit", "--orders", "5", "--rate", "100")
TESTS = (
    *("-m", "pytest", "-q", "-p", "no:cacheprovider"),
    "tests/support/test_postgres_server.py::test_a_server_tells_its_major_version",
)


def run(surroundings: str, cwd: Path, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Run Python in surroundings, without a terminal."""
    before, environ = SURROUNDINGS[surroundings]
    return subprocess.run(
        [*before, sys.executable, *words],
        cwd=cwd,
        env=os.environ | environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=max(PATIENCE_S, TEST_TIMEOUT_S),
        check=False,
    )


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_the_demo_ends_well(surroundings: str, tmp_path: Path) -> None:
    done = run(surroundings, tmp_path, DEMO)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 of 5 orders paid · 0 lost · 0 paid twice" in done.stdout


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_tests_pass(surroundings: str) -> None:
    done = run(surroundings, ROOT, TESTS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
