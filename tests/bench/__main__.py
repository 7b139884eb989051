"""`python -m tests.bench [--tiny|--quick|--full] [--server …] [--only name,…] [--peers [name,…]] [-o json]`"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NoReturn

import msgspec

from holdfast.cli.exits import Exit
from holdfast.cli.talk import complain
from holdfast.core.errors import CommandUsage
from holdfast.core.nearest import nearest
from tests.bench.figure import FULL, QUICK, TINY, USUAL, Bench, Result, Scale
from tests.bench.figures import FIGURES, GROUPS, WITHOUT_SERVER
from tests.bench.machine import describe_machine
from tests.bench.peers import PEERS, Peer
from tests.bench.peers.contest import compare
from tests.bench.report import print_facts, print_peers, print_result, print_table
from tests.bench.server import BOTH, STOCK, WHEEL, BenchServer, ServerMissing, servers

NAMES = tuple(name for names in FIGURES.values() for name in names)


def main() -> int:
    """Measure what was asked for; return the exit code."""
    # Told to end, it ends what it has started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    parser = _parser()
    chosen = parser.parse_args()
    scale = next((each for each in (TINY, QUICK, FULL) if getattr(chosen, each.name)), USUAL)
    wanted = _wanted(parser, chosen.only)
    machine = describe_machine()
    try:
        with servers(chosen.server) as (found, missing):
            for each in missing:
                print(f"left out: {each}", file=sys.stderr)
            settings: dict[str, Any] = {
                "scale": asdict(scale),
                "servers": {each.name: each.settings() for each in found},
                "left_out": missing,
            }
            if chosen.peers is not None:
                rows, skipped = compare(chosen.peers, found, scale)
            else:
                results = _measure(found, scale, wanted)
    except ServerMissing as error:
        parser.refuse(str(error), "choose another server with --server")
    report: dict[str, Any] = {"machine": machine, "settings": settings}
    if chosen.peers is not None:
        _print(chosen, report | {"peers": rows, "skipped": skipped})
        return Exit.OK
    _print(chosen, report | {"results": results})
    missed = chosen.check and any(each.verdict == "below" for each in results)
    return Exit.CHECK_NOT_MET if missed else Exit.OK


def _print(chosen: argparse.Namespace, report: dict[str, Any]) -> None:
    if chosen.output == "json":
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
        return
    plain = chosen.output == "markdown"
    print_facts(report["machine"], report["settings"])
    if "peers" in report:
        print_peers(report["peers"], report["skipped"], plain)
    else:
        print_table(report["results"], plain)


def _measure(found: Sequence[BenchServer], scale: Scale, wanted: frozenset[str]) -> list[Result]:
    """Take each figure on one server after the other; what needs no server is taken once."""
    results: list[Result] = []
    for measure, names in FIGURES.items():
        for number, server in enumerate(found):
            asked = wanted if number == 0 else wanted - WITHOUT_SERVER
            if asked.intersection(names):
                for each in measure(Bench(server, scale, asked)):
                    figure = each.name.partition(":")[0]
                    place = "" if figure in WITHOUT_SERVER else server.name
                    results.append(msgspec.structs.replace(each, server=place))
                    print_result(results[-1], sys.stderr)
    return results


class _Parser(argparse.ArgumentParser):
    """A parser that complains as the `holdfast` command does, which hands over to it."""

    def error(self, message: str) -> NoReturn:
        """Complain of what cannot be understood."""
        self.refuse(message, "see `holdfast bench --help`")

    def refuse(self, message: str, help: str) -> NoReturn:
        """Complain, say what helps, and end."""
        complain(CommandUsage(f"holdfast bench: {message}", help=help))
        raise SystemExit(Exit.USAGE)


def _server(text: str) -> str:
    if text not in (STOCK, WHEEL, BOTH) and not text.startswith(("postgresql://", "postgres://")):
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is neither stock, wheel, both nor a postgresql:// URL"
        )
    return text


def _peers(text: str) -> tuple[Peer, ...]:
    known = {each.name: each for each in PEERS}
    names = known if text == "all" else [each for each in text.split(",") if each]
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name[:40]!r} is not among {', '.join(known)}")
    return tuple(known[name] for name in names)


def _parser() -> _Parser:
    parser = _Parser(prog="python -m tests.bench", description="Measure this machine.")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--tiny", action="store_true", help="one small round: does it work?")
    size.add_argument("--quick", action="store_true", help="three small rounds")
    size.add_argument("--full", action="store_true", help="beside ten million finished jobs")
    parser.add_argument(
        "--check", action="store_true", help="exit 6 when a figure is below its floor"
    )
    parser.add_argument(
        "--server", type=_server, default=BOTH, metavar=f"{STOCK}|{WHEEL}|{BOTH}|URL"
    )
    parser.add_argument("-o", "--output", choices=("table", "json", "markdown"), default="table")
    parser.add_argument("--only", default="", metavar="NAME,…", help=", ".join((*GROUPS, *NAMES)))
    parser.add_argument(
        "--peers",
        type=_peers,
        nargs="?",
        const="all",
        metavar="NAME,…",
        help="other queues beside ours",
    )
    return parser


def _wanted(parser: _Parser, only: str) -> frozenset[str]:
    """Return the figures that names and groups mean; all without any."""
    asked = [each for each in only.split(",") if each]
    known = (*NAMES, *GROUPS)
    for each in asked:
        if each not in known:
            help = (nearest(each, known), f"there are {', '.join(known)}")
            parser.refuse(f"there is no figure {each[:40]!r}", " · ".join(filter(None, help)))
    return frozenset(name for each in asked or NAMES for name in GROUPS.get(each, (each,)))


if __name__ == "__main__":
    sys.exit(main())
