"""A signal is not lost, wherever it reaches a command."""

import signal
import subprocess
import sys

import pytest

from tests.support.until import PATIENCE_S

IN_A_DESTRUCTOR = """
import os, sys
from holdfast_demo.remembered_signals import raise_on_signals, sleep_unless_interrupted

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), int(sys.argv[1]))

raise_on_signals()
try:
    dropped = Dropped()
    del dropped
    while True:
        sleep_unless_interrupted(0.01)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_came_in_a_destructor_is_not_lost(number: signal.Signals) -> None:
    command = [sys.executable, "-c", IN_A_DESTRUCTOR, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert "Exception ignored in" in done.stderr
    assert done.stdout == "interrupted\n"
