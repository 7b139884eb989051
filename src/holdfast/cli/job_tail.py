"""`holdfast jobs tail`: a line for every job that appears or changes its state."""

from __future__ import annotations

import sys
from time import sleep
from typing import Any

import click

from holdfast.cli.choosing import filter_argument
from holdfast.cli.lazy import Command
from holdfast.cli.output import Format, clean, output_option, write_json
from holdfast.cli.session import Session, with_database
from holdfast.cli.talk import wants_colour
from holdfast.cli.views import first_line, state_colour

_INTERVAL_S = 1.0


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
    type=click.IntRange(0, 500),
    default=10,
    show_default=True,
    help="Of what has happened before, show this many.",
)
@output_option
@with_database
def tail(session: Session, filter: tuple[str, ...], lines: int, output: Format) -> None:
    """Follow jobs: a line for each that appears or changes its state, until interrupted.

    Once a second the newest 2,000 jobs are looked through, and the newest 500 of the filter are watched; JSON comes one
    object a line.
    """
    from holdfast.service.jobs import TAILED, JobDesk
    from holdfast.service.watch import Watch

    watch, desk, caller = Watch(), JobDesk(session.desk), session.caller()
    wanted = " ".join(filter)
    earlier = session.run(desk.changes(caller, wanted, watch, TAILED))
    for job in earlier[len(earlier) - lines :]:
        _write(job, output)
    while True:
        sys.stdout.flush()
        sleep(_INTERVAL_S)
        for job in session.run(desk.changes(caller, wanted, watch, TAILED)):
            _write(job, output)


def _write(job: dict[str, Any], output: Format) -> None:
    match output:
        case "table":
            click.echo(_line(job), color=wants_colour(sys.stdout))
        case "json" | "ndjson":
            write_json(job)
        case "id":
            click.echo(job["id"])


def _line(job: dict[str, Any]) -> str:
    when = job["finished_at"] or job["started_at"] or job["created_at"]
    state = click.style(f"{job['state']:<9}", fg=state_colour(job))
    attempt = f" attempt {job['attempt']}" if job["attempt"] > 1 else ""
    error = f" {clean(first_line(job['error']))}" if job["error"] else ""
    return f"{when}  {state}  {clean(job['type'])}  {job['id']}{attempt}{error}"
