"""Messages to people, on stderr: never data, and coloured only on a terminal that allows it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO, TypeVar

import click

from holdfast.core.errors import HoldfastError

T = TypeVar("T")


def wants_colour(stream: TextIO) -> bool:
    """Whether a stream may get colours; FORCE_COLOR says so of one that is passed on to a terminal."""
    return (stream.isatty() or bool(os.environ.get("FORCE_COLOR"))) and not (
        os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    )


def print_info(text: str) -> None:
    click.echo(text, err=True, color=wants_colour(sys.stderr))


def print_warning(text: str) -> None:
    print_info(f"{click.style('warning:', fg='yellow', bold=True)} {text}")


def print_error(error: HoldfastError) -> None:
    """Print an error with its details and its fix."""
    head, _, rest = error.render().partition(": ")
    print_info(f"{click.style(f'{head}:', fg='red', bold=True)} {rest}")


def is_interactive() -> bool:
    """Whether a prompt can be answered: stdin and stderr are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def progress(items: Sequence[T], size: int, label: str) -> Iterator[Sequence[T]]:
    """Iterate over items in batches, with a progress bar on a terminal."""
    batches = [items[start : start + size] for start in range(0, len(items), size)]
    if len(batches) < 2 or not sys.stderr.isatty():
        yield from batches
        return
    with click.progressbar(length=len(items), label=label, file=sys.stderr) as bar:
        for batch in batches:
            yield batch
            bar.update(len(batch))
