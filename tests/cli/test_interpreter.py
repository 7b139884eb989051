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


@pytest.mark.parametrize(("before", "after"), [(700, 5_000), (50_000, 50_000), (0, 0)])
def test_the_collector_runs_less_often_but_not_against_the_applications_own_wish(
    before: int, after: int
) -> None:
    program = (
        "import gc; from holdfast.cli.serving_process import tune_interpreter;"
        f" gc.set_threshold({before}, 7, 8); tune_interpreter('postgresql'); print(*gc.get_threshold())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == [str(after), "7", "8"]
