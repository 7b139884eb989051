"""Messages to people, on stderr: never data, and coloured only on a terminal that allows it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO, TypeVar

import click

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from logging import Logger

T = TypeVar("T")


def wants_colour(stream: TextIO) -> bool:
    """Whether a stream may get colours; FORCE_COLOR says so of one that is passed on to a terminal."""
    return (stream.isatty() or bool(os.environ.get("FORCE_COLOR"))) and not (
        os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    )


_program = "holdfast"


def name_program(name: str) -> None:
    """Note what people type for `holdfast`, such as `manage.py holdfast`."""
    global _program
    _program = name


def as_typed(text: str) -> str:
    """Return a text with its commands as people type them here."""
    before = _program.removesuffix("holdfast")
    if not before or before == _program:
        return text
    return re.sub(rf"(?<!{re.escape(before)})\bholdfast(?= [a-z-])", lambda _: _program, text)


_logger: Logger | None = None


def log_messages(logger: Logger | None) -> None:
    """From now on, have messages logged, so that stderr has only records; with None, printed."""
    global _logger
    _logger = logger


def print_info(text: str) -> None:
    if _logger is not None:
        _logger.info("%s", as_typed(text))
        return
    click.echo(as_typed(text), err=True, color=wants_colour(sys.stderr))


def print_warning(text: str) -> None:
    if _logger is not None:
        _logger.warning("%s", as_typed(text))
        return
    print_info(f"{click.style('warning:', fg='yellow', bold=True)} {text}")


def print_error(error: HoldfastError) -> None:
    """Print an error with its details and its fix."""
    if _logger is not None:
        _logger.error(
            "%s",
            error.message,
            extra={
                "code": error.code,
                "help": as_typed(error.help),
                "details": error.details or None,
            },
        )
        return
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
