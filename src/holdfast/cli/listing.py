"""Pages of a list: the options they share, and how the next page is offered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from holdfast.cli.choosing import filter_argument
from holdfast.cli.output import Column, Format, Record, output_option, write_records
from holdfast.cli.talk import say

T = TypeVar("T")

page_length_option = click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=50,
    show_default=True,
    help="Most that are listed.",
)
after_option = click.option(
    "--after", metavar="CURSOR", help="Go on where a list of the same filter ended."
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
    """Write one page, and tell how the next is asked for."""
    write_records(items, columns, output)
    if not items:
        say(f"no {noun} found")
    if next is not None:
        say(f"there are more; go on with --after {next}")
