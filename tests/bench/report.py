"""Shows results to people."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from tests.bench.figure import Result


def print_result(result: Result, to: TextIO) -> None:
    """Write one line as soon as a figure is known."""
    print(f"{result.name}: {' · '.join(filter(None, _cells(result)[1:]))}", file=to, flush=True)


def print_table(
    machine: Mapping[str, Any], settings: Mapping[str, Any], results: Sequence[Result]
) -> None:
    """Write the machine, the settings and all figures."""
    # A pipe has no width; rich would take 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 200)
    for name, value in {**machine, **settings}.items():
        console.print(f"{name}: {value}", highlight=False)
    table = Table(
        "figure", "server", "ours", "limit", "ratio", "spread", "beside", "target", "reached"
    )
    for result in results:
        table.add_row(*_cells(result))
    console.print(table)


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
