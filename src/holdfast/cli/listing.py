"""Pages of a list: the options they share, and how the next page is offered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.database import read
from holdfast.cli.output import Column, Format, write_records
from holdfast.cli.talk import say

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.client.listing import Record, Subject
    from holdfast.storage.query import JobQuery
    from holdfast.storage.statement import Op

R = TypeVar("R", bound="Record")

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


def write_page(
    app: Holdfast,
    subject: Subject,
    filter: Sequence[str],
    limit: int,
    after: str | None,
    read_from: Callable[[JobQuery], Op[list[R]]],
    show: Callable[[R], dict[str, Any]],
    columns: Sequence[Column],
    output: Format,
) -> None:
    """Write one page, and tell how the next is asked for."""
    from holdfast.client.listing import read_page

    text = " ".join(filter)
    page = read(app, read_page(subject, text, limit, after, read_from, show))
    write_records(page.items, columns, output)
    if not page.items:
        say(f"no {subject} found")
    if page.next is not None:
        say(f"there are more; go on with --after {page.next}")
