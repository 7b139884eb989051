"""How long a person waits for the package and for the command line's help."""

from __future__ import annotations

import subprocess
import sys
import time

from holdfast_bench.measurement import Bench, Contest, FigureTarget, Result
from holdfast_bench.subject import command_line

STARTS = ("import_holdfast", "cli_help")


def measure_startup(bench: Bench) -> list[Result]:
    """Measure how long the package and the command's help take, less an interpreter that does nothing."""
    python = sys.executable
    contest = Contest(
        bench.scale.rounds,
        {
            "import_holdfast": lambda: _milliseconds([python, "-c", "import holdfast"]),
            "cli_help": lambda: _milliseconds(command_line("--help")),
            "nothing": lambda: _milliseconds([python, "-c", "pass"]),
        },
    )
    return [_startup(contest, name) for name in STARTS if name in bench.wanted]


def _startup(contest: Contest, name: str) -> Result:
    taken = contest.median(name) - contest.median("nothing")
    return contest.result(
        name,
        "ms",
        ours=name,
        limit=None,
        beside={"interpreter": "nothing"},
        target=FigureTarget("ms beyond interpreter startup", taken, floor=150, goal=80),
    )


def _milliseconds(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return (time.perf_counter() - begun) * 1000
