"""How long a person waits for the package and for the command line's help."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.bench.command import ROOT
from tests.bench.figure import Bench, Contest, Result, Target

NAMES = ("import_holdfast", "cli_help")


def measure(bench: Bench) -> list[Result]:
    """Measure both less the start of an interpreter that does nothing."""
    python = sys.executable
    contest = Contest(
        bench.scale.rounds,
        {
            "import_holdfast": lambda: _milliseconds([python, "-c", "import holdfast"]),
            "cli_help": lambda: _milliseconds([str(Path(python).with_name("holdfast")), "--help"]),
            "nothing": lambda: _milliseconds([python, "-c", "pass"]),
        },
    )
    return [_result(contest, name) for name in NAMES if name in bench.wanted]


def _result(contest: Contest, name: str) -> Result:
    taken = contest.median(name) - contest.median("nothing")
    return contest.result(
        name,
        "ms",
        ours=name,
        limit=None,
        beside={"interpreter": "nothing"},
        target=Target("ms beyond the interpreter's start", taken, floor=150, goal=80),
    )


def _milliseconds(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return (time.perf_counter() - begun) * 1000
