"""What is said to people, on stderr: never data, and in colour only on a terminal that wants it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO, TypeVar

import click

from holdfast.core.errors import HoldfastError

T = TypeVar("T")


def wants_colour(stream: TextIO) -> bool:
    """Say whether colour may be written to a stream."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def say(text: str) -> None:
    """Tell people something that is not data."""
    click.echo(text, err=True, color=wants_colour(sys.stderr))


def warn(text: str) -> None:
    """Tell people something they should know before they go on."""
    say(f"{click.style('warning:', fg='yellow', bold=True)} {text}")


def complain(error: HoldfastError) -> None:
    """Show an error: what, why, and how to mend it."""
    head, _, rest = error.render().partition(": ")
    say(f"{click.style(f'{head}:', fg='red', bold=True)} {rest}")


def is_interactive() -> bool:
    """Say whether somebody can answer: both ends are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def count_of(number: int, noun: str) -> str:
    """Write a number with its noun, as in "1 job" and "2 jobs"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def progress(items: Sequence[T], size: int, label: str) -> Iterator[Sequence[T]]:
    """Go through items in batches; a terminal sees how far it is."""
    batches = [items[start : start + size] for start in range(0, len(items), size)]
    if len(batches) < 2 or not sys.stderr.isatty():
        yield from batches
        return
    with click.progressbar(length=len(items), label=label, file=sys.stderr) as bar:
        for batch in batches:
            yield batch
            bar.update(len(batch))
