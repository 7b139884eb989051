"""Figures as people read them: a line as soon as one is known, and tables at the end, on a screen or as Markdown."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import msgspec
from rich.box import SIMPLE_HEAVY
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
    "two_processes": "2 processes",
    "io_async": "5 ms async",
    "io_threads": "5 ms threads",
    "p50_ms": "p50",
    "p99_ms": "p99",
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
STEPS = {"steps": "steps/s", "step_ms": "one alone, ms"}
"""Steps a second of many durable functions, and how long one alone takes."""
EVENTS = {"events": "events/s"}
"""Events a second that are handed over: ours to a consumer."""
PEER_FIGURES = (*SPEED, *COST, *STEPS, *EVENTS)

QUOTED = ("holdfast", "pgqueuer", "graphile-worker")
"""The queues of the README's table."""
NO_SERVER = "no server"

_ANY_WIDTH = 10_000
_BARE = re.compile(r"[\d.,e+-]+")


def print_result(result: Result, to: TextIO) -> None:
    """Write one line as soon as a figure is known, with all that is known of it."""
    also = ", ".join(f"{name} {_number(value)}" for name, value in result.beside.items())
    cells = [*_cells(result), f"±{result.spread / 2:.0%}", also]
    print(_line((*HEAD, "", ""), cells, result.server), file=to, flush=True)


def print_facts(machine: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Write the machine and the settings."""
    for name, value in {**machine, **settings}.items():
        print(f"{name}: {value}")


def print_table(results: Sequence[Result]) -> None:
    """Write all figures, a table for each server."""
    for server in dict.fromkeys(each.server for each in results):
        rows = [_cells(each) for each in results if each.server == server]
        _write(HEAD, rows, server or NO_SERVER)


def print_peers(rows: Sequence[PeerRow]) -> None:
    """Write a line for each queue and kind of settings, ours first: how fast, and at what cost."""
    for title, head, cells in _peer_tables(rows):
        _write(head, cells, title)
    _print_notes(rows)


def print_markdown(results: Sequence[Result], peers: Sequence[PeerRow]) -> None:
    """Write the tables of docs/why/benchmarks.md, and the rows of them that the README quotes."""
    places = tuple(dict.fromkeys(each.server for each in results))
    found: dict[str, dict[str, Result]] = {}
    for each in results:
        found.setdefault(each.name, {})[each.server] = each
    head = ("figure", *(each or NO_SERVER for each in places), "against", "floor", "goal")
    _write_markdown("Holdfast", head, [_markdown_cells(each, places) for each in found.values()])
    bold = [
        msgspec.structs.replace(each, peer=f"**{each.peer}**") if each.is_ours else each
        for each in peers
    ]
    for title, columns, cells in _peer_tables(bold):
        _write_markdown(title, columns, cells)
    quoted = [each for each in bold if each.mode == "best" and each.peer.strip("*") in QUOTED]
    for title, columns, cells in _peer_tables(quoted)[:1]:
        _write_markdown(f"README: {title}", columns, cells)
    _print_notes(peers)


def _peer_tables(rows: Sequence[PeerRow]) -> list[tuple[str, Sequence[str], list[list[str]]]]:
    """Return a title, a head and the cells of each table that has any: speed and cost, for each server."""
    tables: list[tuple[str, Sequence[str], list[list[str]]]] = []
    for server in dict.fromkeys(each.server for each in rows):
        for title, columns in (
            ("jobs per second, ms to the handler", SPEED),
            ("cost of a job", COST),
            ("durable functions", STEPS),
            ("events", EVENTS),
        ):
            cells = [_peer_cells(each, columns) for each in rows if each.server == server]
            if columns in (STEPS, EVENTS):
                # Most queues have none.
                cells = [each for each in cells if any(each[2:])]
            if any(any(each[2:]) for each in cells):
                head = ("queue", "settings", *columns.values())
                tables.append((f"{server}, {title}", head, cells))
    return tables


def _print_notes(rows: Sequence[PeerRow]) -> None:
    for each in rows:
        for note in each.notes:
            print(f"{each.peer} ({each.mode}, {each.server}): {note}")


def _write_markdown(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n{title}:\n")
    for cells in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(cells)} |")


def _write(head: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    table = Table(*head, title=title, box=SIMPLE_HEAVY, padding=(0, 1, 0, 0))
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
        f"{_number(result.ours)} {result.unit}",
        "" if result.baseline is None else f"{_number(result.baseline)} {result.against}",
        "" if result.ratio is None else f"{result.ratio:.2f}",
        *map(_number, (result.floor, result.goal)),
        result.verdict or "",
    ]


def _markdown_cells(by_place: Mapping[str, Result], places: Sequence[str]) -> list[str]:
    """One figure, in all places where it was taken."""
    one = next(iter(by_place.values()))
    values = (_value(by_place[place]) if place in by_place else "" for place in places)
    return [one.name, *values, one.against, *map(_number, (one.floor, one.goal))]


def _value(result: Result) -> str:
    ratio = "" if result.ratio is None else f" · {result.ratio:.2f}"
    return f"{_number(result.ours)} {result.unit}{ratio}"


def _number(value: float | None) -> str:
    """Write what a reader can take in; nothing for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _peer_cells(row: PeerRow, columns: Mapping[str, str]) -> list[str]:
    return [row.peer, row.mode, *(_number(row.figures.get(name)) for name in columns)]
