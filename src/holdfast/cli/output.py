"""Data on stdout: the same records as a table for people, as JSON for programs, as ids for pipes."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from unicodedata import east_asian_width

import click

from holdfast.cli.talk import wants_colour

Format: TypeAlias = Literal["table", "json", "ndjson", "id"]
Record: TypeAlias = Mapping[str, Any]
"""What JSON shows of a thing; instants are RFC 3339 texts already."""

FORMATS: tuple[Format, ...] = ("table", "json", "ndjson", "id")

_GAP = "  "
_LEAST_LAST = 20
_MOST_OTHERS = 60

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How data is written.",
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: its title, its cell of a record, and the colour of a cell."""

    title: str
    cell: Callable[[Record], object]
    colour: Callable[[Record], str | None] = lambda _: None


def write_records(
    records: Iterable[Record],
    columns: Sequence[Column],
    output: Format,
    *,
    id: str = "id",
    single: bool = False,
) -> None:
    """Write records in the chosen form; `single` ones are an object in JSON instead of a list."""
    match output:
        case "table":
            write_table(list(records), columns)
        case "json":
            found = list(records)
            write_json(found[0] if single else found, indent=2)
        case "ndjson":
            for record in records:
                write_json(record)
        case "id":
            for record in records:
                click.echo(str(record[id]))


def write_json(value: object, indent: int | None = None) -> None:
    """Write one JSON value; without indent it is one line."""
    separators = (",", ":") if indent is None else None
    click.echo(json.dumps(value, ensure_ascii=False, indent=indent, separators=separators))


def write_table(
    records: Sequence[Record], columns: Sequence[Column], to_people: bool = False
) -> None:
    """Write an aligned table, unless it is empty; on a terminal the last column is cut to fit, others if very long.

    A table `to_people` is a part of the talk and goes to stderr.
    """
    if not records:
        return
    stream = sys.stderr if to_people else sys.stdout
    rows = [[clean(column.cell(record)) for column in columns] for record in records]
    if stream.isatty():
        rows = [[*(cut(cell, _MOST_OTHERS) for cell in row[:-1]), row[-1]] for row in rows]
    titles = [column.title.upper() for column in columns]
    widths = [max(map(width, cells)) for cells in zip(titles, *rows, strict=True)]
    room = _room(widths) if stream.isatty() else None
    click.echo(_line(titles, widths, room), file=stream)
    for record, row in zip(records, rows, strict=True):
        line = _line(row, widths, room, [column.colour(record) for column in columns])
        click.echo(line, file=stream, color=wants_colour(stream))


def _line(
    cells: Sequence[str],
    widths: Sequence[int],
    room: int | None,
    colours: Sequence[str | None] | None = None,
) -> str:
    parts = []
    for place, (cell, space) in enumerate(zip(cells, widths, strict=True)):
        last = place == len(cells) - 1
        text = cut(cell, room) if last and room is not None else cell
        padding = "" if last else " " * (space - width(text))
        colour = colours[place] if colours else None
        parts.append((click.style(text, fg=colour) if colour else text) + padding)
    return _GAP.join(parts).rstrip()


def _room(widths: Sequence[int]) -> int:
    before = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
    return max(_LEAST_LAST, shutil.get_terminal_size().columns - before)


def clean(value: object) -> str:
    """Return a cell's text: nothing in it may move the cursor or end the line."""
    if value is None:
        return "-"
    return "".join(each if each.isprintable() else " " for each in str(value)) or "-"


def width(text: str) -> int:
    """Return how many columns a terminal needs for a text."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(each) in "WF" else 1 for each in text)


def cut(text: str, room: int) -> str:
    """Return the text, cut with an ellipsis if it needs more than this many columns."""
    if width(text) <= room:
        return text
    kept, used = [], 1
    for each in text:
        used += width(each)
        if used > room:
            break
        kept.append(each)
    return "".join(kept) + "…"
