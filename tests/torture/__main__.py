"""Runs what takes long: `make torture`. Exit 1 if a part failed, or its figures fall short of what they must be.

What each part says, and the journals of campaigns, are in build/torture. With `--record FILE`, campaigns and seeds note
there what came of them.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from tests.torture.figures import shortfalls
from tests.torture.parts import SEEDS, Part, make_lanes, may_mount

FOLDER = Path("build/torture")


def main() -> int:
    """Run the lanes beside one another, then what failed, and judge the figures."""
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the campaigns and seeds")
    parser.add_argument("--seed", type=int, default=1, help="of the campaigns")
    parser.add_argument("--record", metavar="FILE", help="where campaigns and seeds are noted")
    parser.add_argument("--only", default="", help="parts to run, by their beginnings")
    parser.add_argument("--list", action="store_true", help="print the parts")
    given = parser.parse_args()
    chosen = tuple(given.only.split(","))
    lanes = [
        [each for each in lane if each.name.startswith(chosen)]
        for lane in make_lanes(given.scale, given.seed, given.record)
    ]
    if given.list:
        print(
            *(f"{each.name}: {shlex.join(each.words)}" for lane in lanes for each in lane), sep="\n"
        )
        return 0
    if not may_mount():
        for each in (part for lane in lanes for part in lane if part.has_small_disk):
            print(f"{each.name} is left out: only root on Linux can mount the disk that it fills")
        lanes = [[each for each in lane if not each.has_small_disk] for lane in lanes]
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    began = time.monotonic()
    with ThreadPoolExecutor(len(lanes)) as pool:
        codes = {name: code for done in pool.map(run_lane, lanes) for name, code in done.items()}
    for each in (part for lane in lanes for part in lane):
        if codes[each.name] and each.again is not None:
            codes[each.name] = run_part(each._replace(words=each.again, name=f"{each.name}-again"))
    found = [] if given.only else list(judge(given.scale))
    failed = [name for name, code in codes.items() if code]
    for text in (*(f"{name} failed: see {log_of(name)}" for name in failed), *found):
        print(text)
    print(f"{len(codes)} parts in {(time.monotonic() - began) / 60:.0f} min, {len(failed)} failed")
    return 1 if failed or found else 0


def run_lane(lane: Sequence[Part]) -> dict[str, int]:
    """Run parts one after the other, whatever comes of them; return their exit codes."""
    return {each.name: run_part(each) for each in lane}


def run_part(part: Part) -> int:
    """Run a part; return its exit code."""
    began = time.monotonic()
    with output_of(part.name).open("wb") as out, log_of(part.name).open("wb") as log:
        code = subprocess.call(
            ["nice", "-n", str(part.nice), *part.words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            env={**os.environ, **part.environment},
        )
    print(f"{part.name}: exit {code} after {time.monotonic() - began:.0f} s", flush=True)
    return code


def log_of(name: str) -> Path:
    """Where the messages of a part are."""
    return FOLDER / f"{name}.log"


def output_of(name: str) -> Path:
    """Where the output of a part is."""
    return FOLDER / f"{name}.out"


def judge(scale: float) -> Sequence[str]:
    """Return what the figures fall short of."""
    campaigns = [read_figures(path) for path in sorted(FOLDER.glob("campaign-*.out"))]
    return list(
        shortfalls(
            [each for each in campaigns if each],
            read_figures(output_of("seeds")),
            scale,
            int(SEEDS * scale),
        )
    )


def read_figures(path: Path) -> dict[str, Any] | None:
    """Read what a part printed as JSON; None if it came to nothing."""
    try:
        found: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    return found


if __name__ == "__main__":
    sys.exit(main())
