"""A test run in the background, or under nohup, gives its programs what a login shell would."""

import subprocess
import sys
from pathlib import Path

from tests.support.login_signals import IGNORED_BY_STARTERS
from tests.support.until import PATIENCE_S, TEST_TIMEOUT_S
from tests.support.warm_python import LIBRARIES

ROOT = Path(__file__).parents[2]
SHOW_IGNORED = f"""
import signal
print([each for each in {[int(each) for each in IGNORED_BY_STARTERS]} if signal.getsignal(each) is signal.SIG_IGN])
"""
START_DEAF = f"""
import os, signal, subprocess, sys
from tests.support.login_signals import start_programs_with_default_signals

numbers = {[int(each) for each in IGNORED_BY_STARTERS]}
for each in numbers:
    signal.signal(each, signal.SIG_IGN)
start_programs_with_default_signals()
for each in numbers:
    os.kill(os.getpid(), each)
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
"""


def test_programs_of_this_run_ignore_no_signal() -> None:
    cold = subprocess.check_output([sys.executable, "-c", SHOW_IGNORED], text=True)
    warm = LIBRARIES.run(("-c", SHOW_IGNORED), ROOT, {}).stdout
    assert (cold, warm) == ("[]\n", "[]\n")


def test_a_run_that_ignores_signals_goes_on_doing_so_and_its_programs_do_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", START_DEAF, SHOW_IGNORED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_what_is_interrupted_in_tests_is_interrupted_in_the_background_too() -> None:
    tests = "tests/cli/test_status.py tests/cli/test_worker.py"
    chosen = "sqlite and (interrupted or tail or terminal_that_is_closed)"
    command = f'nohup {sys.executable} -m pytest -q -p no:cacheprovider -k "{chosen}" {tests}'
    done = subprocess.run(
        ["sh", "-c", f"{command} & wait $!"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
