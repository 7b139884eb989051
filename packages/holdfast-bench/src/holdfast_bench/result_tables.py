"""Figures as people read them: a line as soon as one is known, and tables at the end, on a screen or as Markdown."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from holdfast_bench.measurement import Result
    from holdfast_bench.peer_contest import PeerRow

HEAD = ("figure", "holdfast", "against", "ratio", "floor", "goal", "reached")
SPEED = {
    "start_one": "start one",
    "start_many": "start many",
    "drain": "drain",
    "two_processes": "two processes",
    "io_async": "5 ms async",
    "io_threads": "5 ms threads",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
}
"""Jobs a second, and milliseconds from a start to its handler."""
COST = {
    "drain_worker_us": "drain: worker µs",
    "drain_server_us": "server µs",
    "wal_bytes": "WAL bytes",
    "lone_worker_us": "lone: worker µs",
    "lone_server_us": "server µs",
}
"""What one job costs in a drain, and one that comes alone."""
PEER_FIGURES = (*SPEED, *COST)

_ANY_WIDTH = 10_000
_BARE = re.compile(r"[\d.,e+-]+")


def print_result(result: Result, to: TextIO) -> None:
    """Write one line as soon as a figure is known, with all that is known of it."""
    also = ", ".join(f"{name} {value:,}" for name, value in result.beside.items())
    cells = [*_cells(result), f"±{result.spread / 2:.0%}", also]
    print(_line((*HEAD, "", ""), cells, result.server), file=to, flush=True)


def print_facts(machine: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Write the machine and the settings."""
    for name, value in {**machine, **settings}.items():
        print(f"{name}: {value}")


def print_table(results: Sequence[Result], markdown: bool = False) -> None:
    """Write all figures, a table for each server."""
    for server in dict.fromkeys(each.server for each in results):
        rows = [_cells(each) for each in results if each.server == server]
        _write(HEAD, rows, server or "without a server", markdown)


def print_peers(rows: Sequence[PeerRow], markdown: bool = False) -> None:
    """Write a line for each queue and kind of settings, ours first: how fast, and at what cost."""
    for server in dict.fromkeys(each.server for each in rows):
        there = [each for each in rows if each.server == server]
        for title, columns in (("jobs per second", SPEED), ("cost of a job", COST)):
            head = ("queue", "settings", *columns.values())
            cells = [_peer_cells(each, columns, markdown) for each in there]
            if any(any(each[2:]) for each in cells):
                _write(head, cells, f"{server}, {title}", markdown)
        for each in there:
            for note in each.notes:
                print(f"{each.peer} ({each.mode}, {server}): {note}")


def _write(head: Sequence[str], rows: Sequence[Sequence[str]], title: str, markdown: bool) -> None:
    if markdown:
        print(f"\n{title}:\n")
        for cells in (head, ["---"] * len(head), *rows):
            print(f"| {' | '.join(cells)} |")
        return
    table = Table(*head, title=title)
    for cells in rows:
        table.add_row(*cells)
    console = Console()
    wanted = Console(width=_ANY_WIDTH).measure(table).maximum
    if sys.stdout.isatty() and wanted <= console.width:
        console.print(table)
        return
    # Cells of five lines are no table: one line for each, as it was written on the way.
    for cells in rows:
        print(_line(head, cells, title))


def _line(head: Sequence[str], cells: Sequence[str], title: str = "") -> str:
    """One row in words: a number that says nothing by itself has its column's name."""
    named = (
        f"{name} {cell}" if _BARE.fullmatch(cell) else cell
        for name, cell in zip(head, cells, strict=True)
    )
    first, *rest = filter(None, named)
    return f"{first}{f' ({title})' if title else ''}: {' · '.join(rest)}"


def _cells(result: Result) -> list[str]:
    return [
        result.name,
        f"{result.ours:,} {result.unit}",
        "" if result.baseline is None else f"{result.baseline:,} {result.against}",
        *("" if each is None else f"{each:.2f}" for each in (result.ratio,)),
        *("" if each is None else f"{each:g}" for each in (result.floor, result.goal)),
        result.verdict or "",
    ]


def _peer_cells(row: PeerRow, columns: Mapping[str, str], markdown: bool) -> list[str]:
    name = f"**{row.peer}**" if markdown and row.is_ours else row.peer
    figures = (f"{row.figures[name]:,g}" if name in row.figures else "" for name in columns)
    return [name, row.mode, *figures]
