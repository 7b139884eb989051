"""`holdfast jobs tail`: a line for every job that appears or changes its state."""

from __future__ import annotations

import sys
from time import sleep
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.choosing import filter_argument
from holdfast.cli.database import read, with_database
from holdfast.cli.lazy import Command
from holdfast.cli.output import Format, clean, output_option, write_json
from holdfast.cli.talk import wants_colour
from holdfast.cli.views import first_line, state_colour
from holdfast.service.shown import shown_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.app import Holdfast
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
def tail(app: Holdfast, filter: tuple[str, ...], lines: int, output: Format) -> None:
    """Follow jobs: a line for each that appears or changes its state, until interrupted.

    The newest 500 jobs of the filter are watched; JSON comes one object a line.
    """
    watch = Watch()
    earlier = list(watch.changes(_look(app, filter)))
    for job in earlier[len(earlier) - lines :]:
        _write(job, output)
    while True:
        sys.stdout.flush()
        sleep(_INTERVAL_S)
        for job in watch.changes(_look(app, filter)):
            _write(job, output)


class Watch:
    """Remembers how each job was last seen."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, int]] = {}

    def changes(self, jobs: list[JobRecord]) -> Iterator[JobRecord]:
        """Return what is new or changed since the last look, the oldest first."""
        before, self._seen = self._seen, {each.id: (each.state, each.attempt) for each in jobs}
        for job in reversed(jobs):
            if before.get(job.id) != self._seen[job.id]:
                yield job


def _look(app: Holdfast, filter: tuple[str, ...]) -> list[JobRecord]:
    from holdfast.client.query import query_of

    return read(app, app.database.store.jobs.page(query_of(" ".join(filter), WINDOW, None)))


def _write(job: JobRecord, output: Format) -> None:
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
