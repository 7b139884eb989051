"""Logs of long-running commands, on stderr, as text or JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from logging import Formatter

T = TypeVar("T")

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("plain", "json")


def log_options(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--log-level` and `--log-format`."""
    level = click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        default="info",
        show_default=True,
        help="Minimum log level.",
    )
    form = click.option(
        "--log-format",
        type=click.Choice(FORMATS),
        default="plain",
        show_default=True,
        help="Text or JSON.",
    )
    return level(form(command))


def log_jobs_option(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command that runs jobs `--log-jobs`."""
    option = click.option("--log-jobs", is_flag=True, help="Log each job, regardless of the level.")
    return option(command)


def set_up_logging(level: str, form: str, jobs: bool = False) -> None:
    """Log to stderr from this level on, and every job's outcome if `jobs` is set."""
    import logging

    from holdfast.observe.logging import JOBS, JsonFormatter

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else _plain())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if jobs:
        logging.getLogger(JOBS).setLevel(logging.DEBUG)


def _plain() -> Formatter:
    import logging

    formatter = logging.Formatter(
        "%(asctime)s.%(msecs)03dZ %(levelname)-7s %(message)s", "%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    return formatter
