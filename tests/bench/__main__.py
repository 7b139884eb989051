"""`python -m tests.bench [--quick|--full] [-o json] [--only name,…]`"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

import msgspec

from tests.bench.figure import FULL, QUICK, USUAL, Bench, Result
from tests.bench.figures import FIGURES
from tests.bench.machine import describe_machine
from tests.bench.report import print_result, print_table
from tests.bench.server import BenchServer

CHECK_NOT_MET = 6
NAMES = tuple(name for names in FIGURES.values() for name in names)


def main() -> int:
    """Measure what was asked for; return the exit code."""
    chosen = _arguments()
    wanted = frozenset(chosen.only.split(",") if chosen.only else NAMES)
    scale = QUICK if chosen.quick else FULL if chosen.full else USUAL
    results: list[Result] = []
    machine = describe_machine()
    with BenchServer() as server:
        settings = {"scale": asdict(scale), "server": server.settings()}
        bench = Bench(server, scale, wanted)
        for measure, names in FIGURES.items():
            if wanted.intersection(names):
                found = measure(bench)
                results += found
                for each in found:
                    print_result(each, sys.stderr)
    if chosen.output == "json":
        report = {"machine": machine, "settings": settings, "results": results}
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        print_table(machine, settings, results)
    missed = chosen.check and any(each.verdict == "below" for each in results)
    return CHECK_NOT_MET if missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description="Measure this machine."
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="three small rounds, about five minutes")
    size.add_argument("--full", action="store_true", help="beside ten million finished jobs")
    parser.add_argument(
        "--check", action="store_true", help="exit 6 when a figure is below its floor"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--only", default="", metavar="NAME,…", help=", ".join(NAMES))
    chosen = parser.parse_args()
    unknown = set(filter(None, chosen.only.split(","))) - set(NAMES)
    if unknown:
        parser.error(f"there is no figure {sorted(unknown)[0]}; there are {', '.join(NAMES)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
