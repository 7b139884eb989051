"""Data on stdout: records as a table, as JSON or as ids, one record in full, and pages of a list."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar
from unicodedata import east_asian_width

import click

from holdfast.cli.completion import complete_filter
from holdfast.cli.console import print_info, wants_colour
from holdfast.core.ids import short_id

if TYPE_CHECKING:
    from holdfast.admin.access import AuditPage
    from holdfast.client.views import Page

Format: TypeAlias = Literal["table", "json", "ndjson", "id"]
Record: TypeAlias = Mapping[str, Any]
"""A thing as JSON; times are RFC 3339 strings."""

FORMATS: tuple[Format, ...] = ("table", "json", "ndjson", "id")

_GAP = "  "
_LEAST_WIDTH = 6
_MAX_INTERVAL_S = 86_400
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

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


def columns(*names: str, **fields: str) -> tuple[Column, ...]:
    """Return columns that show the fields of these names, or fields under other titles."""
    titles = dict(zip(names, names, strict=True)) | fields
    return tuple(Column(title, itemgetter(name)) for title, name in titles.items())


def flag_column(title: str, colour: str, name: str | None = None) -> Column:
    """Return a column that shows a field, coloured where the field says something."""
    field = itemgetter(name or title)
    return Column(title, field, lambda row: colour if field(row) else None)


def write_records(
    records: Iterable[Record],
    columns: Sequence[Column],
    output: Format,
    *,
    id: str = "id",
    empty: str = "",
) -> None:
    """Write records in the chosen format; `empty` is the message when there are none."""
    records = list(records)
    match output:
        case "table":
            write_table(records, columns)
        case "json":
            write_json(records, indent=2)
        case "ndjson":
            for record in records:
                write_json(record)
        case "id":
            for record in records:
                click.echo(str(record[id]))
    if empty and not records:
        print_info(empty)


def write_single(
    record: Record, output: Format, write_text: Callable[[], None], id: str = "id"
) -> None:
    """Write one record in the chosen format; `write_text` writes it for people."""
    match output:
        case "table":
            write_text()
        case "id":
            click.echo(str(record[id]))
        case _:
            write_json(record, indent=2 if output == "json" else None)


def write_json(value: object, indent: int | None = None) -> None:
    """Write one JSON value; without indent it is one line."""
    separators = (",", ":") if indent is None else None
    click.echo(json.dumps(value, ensure_ascii=False, indent=indent, separators=separators))


def write_table(
    records: Sequence[Record],
    columns: Sequence[Column],
    to_stderr: bool = False,
    pipe_width: int | None = None,
) -> None:
    """Write an aligned table, unless it is empty; a terminal, or a pipe with a width, gets one that fits."""
    if not records:
        return
    stream = sys.stderr if to_stderr else sys.stdout
    width = shutil.get_terminal_size().columns if stream.isatty() else pipe_width
    titles, rows, widths = lay_out(records, columns, width)
    click.echo(_line(titles, widths), file=stream)
    for record, row in zip(records, rows, strict=True):
        line = _line(row, widths, [column.colour(record) for column in columns])
        click.echo(line, file=stream, color=wants_colour(stream))


def lay_out(
    records: Sequence[Record], columns: Sequence[Column], width: int | None
) -> tuple[list[str], list[list[str]], list[int]]:
    """Return titles, cells and widths; where it is narrow, ids are short and the widest columns are cut."""
    titles = [column.title.upper() for column in columns]
    rows = [[clean(column.cell(record)) for column in columns] for record in records]
    widths = _widths(titles, rows)
    if width is None or _total(widths) <= width:
        return titles, rows, widths
    rows = [[*map(_short_if_id, row)] for row in rows]
    widths = _widths(titles, rows)
    while _total(widths) > width and max(widths) > _LEAST_WIDTH:
        widths[widths.index(max(widths))] -= 1
    cut = [[truncate(cell, room) for cell, room in zip(row, widths, strict=True)] for row in rows]
    return [truncate(title, room) for title, room in zip(titles, widths, strict=True)], cut, widths


def _widths(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(display_width, cells)) for cells in zip(titles, *rows, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _short_if_id(cell: str) -> str:
    """Every command takes the short form of an id."""
    return short_id(cell) if _ID.fullmatch(cell) else cell


def _line(
    cells: Sequence[str], widths: Sequence[int], colours: Sequence[str | None] | None = None
) -> str:
    parts = []
    for place, (cell, space) in enumerate(zip(cells, widths, strict=True)):
        padding = "" if place == len(cells) - 1 else " " * (space - display_width(cell))
        colour = colours[place] if colours else None
        parts.append((click.style(cell, fg=colour) if colour else cell) + padding)
    return _GAP.join(parts).rstrip()


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
    click.echo("\n".join(detail_lines(detail)))
    for records, columns in detail.tables:
        if records:
            click.echo()
            write_table(records, columns)


def detail_lines(detail: Detail) -> list[str]:
    """Return everything about one thing but its title and its tables."""
    facts = {name: value for name, value in detail.facts.items() if value is not None}
    space = max(map(len, facts), default=0)
    lines = [clean(detail.sentence)] if detail.sentence else []
    lines += ["", *(f"  {name:{space}}  {clean(value)}" for name, value in facts.items())]
    for name, value in detail.payloads.items():
        if value is not None:
            lines += ["", f"{name}:", _indent(json.dumps(value, ensure_ascii=False, indent=2))]
    return [*lines, "", "error:", _indent(detail.text)] if detail.text else lines


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


def parse_pairs(_: Any, __: Any, given: tuple[str, ...]) -> dict[str, str] | None:
    """Return what an option such as `--context tenant=acme` says, None where it was not given."""
    return {name: value for name, _, value in (each.partition("=") for each in given)} or None


def first_line(text: str | None) -> str:
    """Return an error's message, without its traceback."""
    return (text or "").strip().partition("\n")[0]


JOB_COLUMNS = (
    *columns("id", "type"),
    Column("state", lambda row: row["state"], state_colour),
    *columns("attempt"),
    Column("created", lambda row: to_seconds(row["created_at"])),
    Column("error", lambda row: first_line(row["error"] or row.get("last_error"))),
)
CHAIN_COLUMNS = (
    *columns("id", "type"),
    Column("state", lambda row: row["state"], state_colour),
    *columns("jobs"),
    Column("created", lambda row: to_seconds(row["created_at"])),
    Column("finished", lambda row: to_seconds(row["finished_at"])),
    Column("error", lambda row: first_line(row["error"])),
)


T = TypeVar("T")

filter_argument = click.argument(
    "filter", nargs=-1, metavar="[FILTER]...", shell_complete=complete_filter
)
after_option = click.option(
    "--after", metavar="CURSOR", help="Continue after this cursor, with the same filter."
)


class _Seconds(click.FloatRange):
    """A number within a range; click takes nan for one that is within each."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return found


def interval_option(least: float) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Give a command `--interval`, the seconds between two reads."""
    allowed = _Seconds(least, _MAX_INTERVAL_S)
    return click.option(
        "--interval", type=allowed, default=1.0, show_default=True, help="Seconds between updates."
    )


def limit_option(default: int, max: int = 1_000) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Give a command `--limit`, the length of a page."""
    allowed = click.IntRange(1, max)
    return click.option(
        "--limit", type=allowed, default=default, show_default=True, help="Maximum rows."
    )


def list_options(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command a filter, `--limit`, `--after` and `-o`."""
    return filter_argument(limit_option(50)(after_option(output_option(command))))


def write_page(
    noun: str,
    page: Page[dict[str, Any]] | AuditPage,
    columns: Sequence[Column],
    output: Format,
    after: str | None,
    id: str = "id",
) -> None:
    """Write one page, and how to get the next, or where a search stopped before it had seen everything."""
    searched = ""
    if getattr(page, "cut", False):
        from holdfast.client.pagination import LOOK

        searched = f"the {'newest' if after is None else 'next'} {LOOK:,} {noun}"
    empty = f"none among {searched}" if searched else f"no {noun} found"
    write_records(page.items, columns, output, id=id, empty=empty)
    if page.next is not None:
        more = f"searched {searched}" if searched else "there are more"
        print_info(f"{more}; continue with --after {page.next}")
