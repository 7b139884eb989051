"""Data on stdout: records as a table, as JSON or as ids, one record in full, and pages of a list."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal, TypeAlias, TypeVar
from unicodedata import east_asian_width

import click

from holdfast.cli.console import print_info, wants_colour
from holdfast.cli.selection import filter_argument

Format: TypeAlias = Literal["table", "json", "ndjson", "id"]
Record: TypeAlias = Mapping[str, Any]
"""A thing as JSON; times are RFC 3339 strings."""

FORMATS: tuple[Format, ...] = ("table", "json", "ndjson", "id")

_GAP = "  "
_MIN_LAST_WIDTH = 20
_MAX_WIDTH = 60

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="Output format.",
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: its title, and the cell and colour of a record."""

    title: str
    cell: Callable[[Record], object]
    colour: Callable[[Record], str | None] = lambda _: None


def columns(*names: str) -> tuple[Column, ...]:
    """Return columns that show the fields of these names."""
    return tuple(Column(name, itemgetter(name)) for name in names)


def write_records(
    records: Iterable[Record],
    columns: Sequence[Column],
    output: Format,
    *,
    id: str = "id",
    single: bool = False,
) -> None:
    """Write records in the chosen format; a `single` one is an object in JSON instead of a list."""
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
    records: Sequence[Record], columns: Sequence[Column], to_stderr: bool = False
) -> None:
    """Write an aligned table, unless it is empty; a terminal gets the last column cut to fit, others if very long."""
    if not records:
        return
    stream = sys.stderr if to_stderr else sys.stdout
    rows = [[clean(column.cell(record)) for column in columns] for record in records]
    if stream.isatty():
        rows = [[*(truncate(cell, _MAX_WIDTH) for cell in row[:-1]), row[-1]] for row in rows]
    titles = [column.title.upper() for column in columns]
    widths = [max(map(display_width, cells)) for cells in zip(titles, *rows, strict=True)]
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
        text = truncate(cell, room) if last and room is not None else cell
        padding = "" if last else " " * (space - display_width(text))
        colour = colours[place] if colours else None
        parts.append((click.style(text, fg=colour) if colour else text) + padding)
    return _GAP.join(parts).rstrip()


def _room(widths: Sequence[int]) -> int:
    before = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
    return max(_MIN_LAST_WIDTH, shutil.get_terminal_size().columns - before)


def clean(value: object) -> str:
    """Return a value as printable text, without control characters that move the cursor or end the line."""
    if value is None:
        return "-"
    return "".join(each if each.isprintable() else " " for each in str(value)) or "-"


def display_width(text: str) -> int:
    """Return how many terminal columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(each) in "WF" else 1 for each in text)


def truncate(text: str, room: int) -> str:
    """Return the text, cut with an ellipsis if it takes more than `room` columns."""
    if display_width(text) <= room:
        return text
    kept, used = [], 1
    for each in text:
        used += display_width(each)
        if used > room:
            break
        kept.append(each)
    return "".join(kept) + "…"


@dataclass(frozen=True, slots=True)
class Detail:
    """One thing in full; facts and payloads that are None are omitted."""

    title: str
    sentence: str = ""
    colour: str | None = None
    facts: Mapping[str, object] = field(default_factory=dict)
    payloads: Mapping[str, object] = field(default_factory=dict)
    text: str | None = None
    tables: Sequence[tuple[Sequence[Record], Sequence[Column]]] = ()


def write_detail(detail: Detail) -> None:
    """Write one thing in full, to stdout."""
    colour = wants_colour(sys.stdout)
    click.echo(click.style(clean(detail.title), fg=detail.colour, bold=True), color=colour)
    if detail.sentence:
        click.echo(clean(detail.sentence))
    click.echo()
    facts = {name: value for name, value in detail.facts.items() if value is not None}
    space = max(map(len, facts), default=0)
    for name, value in facts.items():
        click.echo(f"  {name:{space}}  {clean(value)}")
    for name, value in detail.payloads.items():
        if value is not None:
            click.echo(f"\n{name}:\n{_indent(json.dumps(value, ensure_ascii=False, indent=2))}")
    if detail.text:
        click.echo(f"\nerror:\n{_indent(detail.text)}")
    for records, columns in detail.tables:
        if records:
            click.echo()
            write_table(records, columns)


def _indent(text: str) -> str:
    """Indent a text of several lines, without control characters."""
    lines = text.expandtabs(4).splitlines()
    return "\n".join(f"  {''.join(c if c.isprintable() else ' ' for c in line)}" for line in lines)


STATE_COLOURS = {
    "blocked": "magenta",
    "pending": "yellow",
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "cancelled": "bright_black",
}


def state_colour(record: Record) -> str | None:
    """Return the colour of a record's state."""
    return STATE_COLOURS.get(str(record.get("state")))


def to_seconds(text: str | None) -> str | None:
    """Shorten an RFC 3339 time to seconds, for a table."""
    return None if text is None else f"{text[:19]}Z"


def first_line(text: str | None) -> str:
    """Return an error's message, without its traceback."""
    return (text or "").strip().partition("\n")[0]


JOB_COLUMNS = (
    *columns("id", "type"),
    Column("state", lambda row: row["state"], state_colour),
    Column("attempt", lambda row: row["attempt"]),
    Column("created", lambda row: to_seconds(row["created_at"])),
    Column("error", lambda row: first_line(row["error"])),
)
CHAIN_COLUMNS = (
    *columns("id", "type"),
    Column("state", lambda row: row["state"], state_colour),
    Column("jobs", lambda row: row["jobs"]),
    Column("created", lambda row: to_seconds(row["created_at"])),
    Column("finished", lambda row: to_seconds(row["finished_at"])),
    Column("error", lambda row: first_line(row["error"])),
)


T = TypeVar("T")

page_length_option = click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=50,
    show_default=True,
    help="Maximum rows.",
)
after_option = click.option(
    "--after", metavar="CURSOR", help="Continue after this cursor, with the same filter."
)


def list_options(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command a filter, `--limit`, `--after` and `-o`."""
    return filter_argument(page_length_option(after_option(output_option(command))))


def write_page(
    noun: str,
    items: Sequence[Record],
    next: str | None,
    columns: Sequence[Column],
    output: Format,
) -> None:
    """Write one page, and how to get the next."""
    write_records(items, columns, output)
    if not items:
        print_info(f"no {noun} found")
    if next is not None:
        print_info(f"there are more; continue with --after {next}")
