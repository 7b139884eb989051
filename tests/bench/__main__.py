"""`python -m tests.bench [--quick|--full] [-o json] [--only name,…]`"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import NoReturn

import msgspec

from holdfast.cli.exits import Exit
from holdfast.cli.talk import complain
from holdfast.core.errors import CommandUsage
from holdfast.core.nearest import nearest
from tests.bench.figure import FULL, QUICK, USUAL, Bench, Result
from tests.bench.figures import FIGURES
from tests.bench.machine import describe_machine
from tests.bench.report import print_result, print_table
from tests.bench.server import BenchServer

NAMES = tuple(name for names in FIGURES.values() for name in names)


def main() -> int:
    """Measure what was asked for; return the exit code."""
    chosen = _arguments()
    wanted = frozenset(chosen.only or NAMES)
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
    return Exit.CHECK_NOT_MET if missed else Exit.OK


class _Parser(argparse.ArgumentParser):
    """A parser that complains as the `holdfast` command does, which hands over to it."""

    def error(self, message: str) -> NoReturn:
        """Complain of what cannot be understood."""
        self.refuse(message, "see `holdfast bench --help`")

    def refuse(self, message: str, help: str) -> NoReturn:
        """Complain, say what helps, and end."""
        complain(CommandUsage(f"holdfast bench: {message}", help=help))
        raise SystemExit(Exit.USAGE)


def _arguments() -> argparse.Namespace:
    parser = _Parser(prog="python -m tests.bench", description="Measure this machine.")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="three small rounds, about five minutes")
    size.add_argument("--full", action="store_true", help="beside ten million finished jobs")
    parser.add_argument(
        "--check", action="store_true", help="exit 6 when a figure is below its floor"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--only", default="", metavar="NAME,…", help=", ".join(NAMES))
    chosen = parser.parse_args()
    chosen.only = [each for each in chosen.only.split(",") if each]
    unknown = [each for each in chosen.only if each not in NAMES]
    if unknown:
        near = nearest(unknown[0], NAMES)
        known = f"there are {', '.join(NAMES)}"
        parser.refuse(
            f"there is no figure {unknown[0][:40]!r}", " · ".join(filter(None, (near, known)))
        )
    return chosen


if __name__ == "__main__":
    sys.exit(main())
