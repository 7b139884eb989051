"""The interpreter of a serving process."""

import subprocess
import sys

import pytest

SEEN = """
import gc, sys
from holdfast.cli.serving_process import tune_interpreter
before = gc.get_freeze_count()
tune_interpreter(sys.argv[1])
print(gc.get_freeze_count() > before, sys.getswitchinterval() < 0.001)
"""


@pytest.mark.parametrize(
    ("dialect", "takes_short_turns"), [("sqlite", True), ("postgresql", False)]
)
def test_what_is_loaded_is_collected_no_more_and_threads_take_short_turns_on_sqlite(
    dialect: str, takes_short_turns: bool
) -> None:
    program = [sys.executable, "-c", SEEN, dialect]
    ran = subprocess.run(program, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", str(takes_short_turns)]
