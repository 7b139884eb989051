"""Figures as people read them: a line as soon as one is known, and tables at the end."""

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

HEAD = ("figure", "server", "holdfast", "baseline", "ratio", "spread", "also", "target", "reached")
PEER_FIGURES = ("start_one", "start_many", "drain", "two_processes", "drain_io", "p50_ms", "p99_ms")

_ANY_WIDTH = 10_000
_BARE = re.compile(r"[\d.,e+-]+")


def print_result(result: Result, to: TextIO) -> None:
    """Write one line as soon as a figure is known."""
    print(_line(HEAD, _cells(result)), file=to, flush=True)


def print_facts(machine: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Write the machine and the settings."""
    for name, value in {**machine, **settings}.items():
        print(f"{name}: {value}")


def print_table(results: Sequence[Result], plain: bool = False) -> None:
    """Write all figures; `plain` as Markdown."""
    _write(HEAD, [_cells(result) for result in results], plain)


def print_peers(rows: Sequence[PeerRow], plain: bool = False) -> None:
    """Write a line for each queue and kind of settings, ours first."""
    head = ("queue", "settings", "server", *PEER_FIGURES, "notes")
    _write(head, [_peer_cells(row) for row in rows], plain)


def _write(head: Sequence[str], rows: Sequence[Sequence[str]], plain: bool) -> None:
    if plain:
        for cells in (head, ["---"] * len(head), *rows):
            print(f"| {' | '.join(cells)} |")
        return
    table = Table(*head)
    for cells in rows:
        table.add_row(*cells)
    console = Console()
    wanted = Console(width=_ANY_WIDTH).measure(table).maximum
    if sys.stdout.isatty() and wanted <= console.width:
        console.print(table)
        return
    # Cells of five lines are no table: one line for each, as it was written on the way.
    for cells in rows:
        print(_line(head, cells))


def _line(head: Sequence[str], cells: Sequence[str]) -> str:
    """One row in words: a number that says nothing by itself has its column's name."""
    named = (
        f"{name} {cell}" if _BARE.fullmatch(cell) else cell
        for name, cell in zip(head, cells, strict=True)
    )
    first, *rest = filter(None, named)
    return f"{first}: {' · '.join(rest)}"


def _cells(result: Result) -> list[str]:
    target = result.target
    aimed = (
        ""
        if target is None
        else f"{target.of} {target.value:g}: floor {target.floor:g}, goal {target.goal:g}"
    )
    return [
        result.name,
        result.server,
        f"{result.ours:,} {result.unit}",
        "" if result.limit is None else f"{result.limit:,} ({result.against})",
        "" if result.ratio is None else f"{result.ratio:.2f}",
        f"±{result.spread / 2:.0%}",
        ", ".join(f"{name} {value:,}" for name, value in result.beside.items()),
        aimed,
        result.verdict or "",
    ]


def _peer_cells(row: PeerRow) -> list[str]:
    figures = (f"{row.figures[name]:,g}" if name in row.figures else "" for name in PEER_FIGURES)
    return [f"{row.peer} {row.version}", row.mode, row.server, *figures, "; ".join(row.notes)]
