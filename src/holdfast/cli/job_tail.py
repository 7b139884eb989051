"""`holdfast jobs tail`: a line for every job that appears or changes its state."""

from __future__ import annotations

import sys
from time import sleep
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.choosing import filter_argument
from holdfast.cli.lazy import Command
from holdfast.cli.output import Format, clean, output_option, write_json
from holdfast.cli.session import Session, with_database
from holdfast.cli.talk import wants_colour
from holdfast.cli.views import first_line, state_colour

if TYPE_CHECKING:
    from holdfast.core.model import JobRecord

WINDOW = 500
"""The newest jobs that are watched: what changes further back is not seen."""

_INTERVAL_S = 0.5


@click.command(
    "tail",
    cls=Command,
    examples=(
        "holdfast jobs tail",
        "holdfast jobs tail type:mail.* --lines 0",
        "holdfast jobs tail state:failed -o ndjson",
    ),
)
@filter_argument
@click.option(
    "--lines",
    type=click.IntRange(0, WINDOW),
    default=10,
    show_default=True,
    help="Of what has happened before, show this many.",
)
@output_option
@with_database
def tail(session: Session, filter: tuple[str, ...], lines: int, output: Format) -> None:
    """Follow jobs: a line for each that appears or changes its state, until interrupted.

    The newest 500 jobs of the filter are watched; JSON comes one object a line.
    """
    from holdfast.service.watch import Watch

    watch = Watch()
    earlier = list(watch.changes(_look(session, filter)))
    for job in earlier[len(earlier) - lines :]:
        _write(job, output)
    while True:
        sys.stdout.flush()
        sleep(_INTERVAL_S)
        for job in watch.changes(_look(session, filter)):
            _write(job, output)


def _look(session: Session, filter: tuple[str, ...]) -> list[JobRecord]:
    from holdfast.client.query import query_of

    return session.read(session.store.jobs.page(query_of(" ".join(filter), WINDOW, None)))


def _write(job: JobRecord, output: Format) -> None:
    from holdfast.service.shown import shown_job

    shown = shown_job(job)
    match output:
        case "table":
            click.echo(_line(shown), color=wants_colour(sys.stdout))
        case "json" | "ndjson":
            write_json(shown)
        case "id":
            click.echo(shown["id"])


def _line(job: dict[str, Any]) -> str:
    when = job["finished_at"] or job["started_at"] or job["created_at"]
    state = click.style(f"{job['state']:<9}", fg=state_colour(job))
    attempt = f" attempt {job['attempt']}" if job["attempt"] > 1 else ""
    error = f" {clean(first_line(job['error']))}" if job["error"] else ""
    return f"{when}  {state}  {clean(job['type'])}  {job['id']}{attempt}{error}"
