"""The interpreter of a serving process."""

import subprocess
import sys

SEEN = """
import gc, sys
from holdfast.cli.serving_process import tune_interpreter
before = gc.get_freeze_count()
tune_interpreter()
print(gc.get_freeze_count() > before, sys.getswitchinterval() < 0.001)
"""


def test_what_is_loaded_is_collected_no_more_and_threads_take_short_turns() -> None:
    ran = subprocess.run([sys.executable, "-c", SEEN], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", "True"]
