"""How long a person waits for the package and for the command line's help."""

from __future__ import annotations

import subprocess
import sys
import time

from holdfast_bench.measurement import Bench, Contest, Result
from holdfast_bench.subject import command_line

STARTS = {"import_holdfast": (3.0, 2.0), "cli_help": (6.5, 4.0)}
"""Floor and goal, in starts of an interpreter that does nothing."""


def measure_startup(bench: Bench) -> list[Result]:
    """Measure how long the package and the command's help take."""
    python = sys.executable
    contest = Contest(
        bench.scale.rounds,
        {
            "import_holdfast": lambda: _milliseconds([python, "-c", "import holdfast"]),
            "cli_help": lambda: _milliseconds(command_line("--help")),
            "nothing": lambda: _milliseconds([python, "-c", "pass"]),
        },
    )
    return [
        contest.result(
            name,
            "ms",
            ours=name,
            baseline="nothing",
            against="python alone",
            floor=floor,
            goal=goal,
        )
        for name, (floor, goal) in STARTS.items()
        if name in bench.wanted
    ]


def _milliseconds(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return (time.perf_counter() - begun) * 1000
