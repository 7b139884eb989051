"""`holdfast dead`: listing, redriving and dropping dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.changes import (
    BulkAction,
    ChangeOptions,
    add_bulk_command,
    bulk_options,
    run_bulk_action,
    select,
)
from holdfast.cli.console import print_info, print_warning
from holdfast.cli.jobs import show_options, write_job
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import (
    JOB_COLUMNS,
    Column,
    Format,
    columns,
    first_line,
    list_options,
    to_seconds,
    write_page,
    write_records,
)
from holdfast.cli.session import CliSession, with_database
from holdfast.core import lifecycle
from holdfast.core.errors import CommandUsage, WrongState

if TYPE_CHECKING:
    from collections.abc import Sequence


GROUP_COLUMNS = (
    *columns("count", "type", "fingerprint"),
    Column("oldest", lambda row: to_seconds(row["oldest_at"])),
    Column("newest", lambda row: to_seconds(row["newest_at"])),
    Column("error", lambda row: first_line(row["error"])),
)


@click.group(
    "dead",
    cls=HelpGroup,
    examples=(
        "holdfast dead list",
        "holdfast dead redrive type:mail.* --rate 50/s --dry-run",
        "holdfast dead drop type:mail.* 'age>90d'",
    ),
    synonyms={"retry": "redrive", "delete": "drop", "why": "show"},
)
def dead() -> None:
    """List, show, redrive and drop dead letters."""


@dead.command(
    "list",
    examples=(
        "holdfast dead list",
        "holdfast dead list type:mail.* fingerprint:5d1c0c6d3f1a2b4e",
        "holdfast dead list -o json",
    ),
)
@list_options
@with_database
def list_(
    session: CliSession, filter: tuple[str, ...], limit: int, after: str | None, output: Format
) -> None:
    """List dead letters, grouped by type and error; with a filter, list each that matches.

    -o id prints the filter of each group, to pass to redrive or drop.
    """
    caller = session.caller()
    if filter:
        text = " ".join(("state:failed", *filter))
        page = session.run(session.admin.jobs.page(caller, text, limit, after))
        write_page("dead letters", page, JOB_COLUMNS, output, after)
        return
    if after is not None:
        raise CommandUsage(
            "--after goes with a filter", help="groups are listed at once, see --limit"
        )
    groups = session.run(session.admin.dead_letters.groups(caller, limit))
    write_records(groups.items, GROUP_COLUMNS, output, id="filter", empty="no dead letters")
    for each in groups.redrives:
        print_info(f"redrive at {each.rate} under way: {each.left} left")
    if groups.cut:
        print_warning("only the newest were searched")


@dead.command(
    "redrive",
    examples=(
        "holdfast dead redrive 0193a6f0-7c00-7000-8000-000000000000",
        "holdfast dead redrive type:mail.* --rate 50/s --yes --reason 'provider is back'",
        "holdfast dead redrive $(holdfast dead list -o id --limit 1) --dry-run",
    ),
)
@click.option(
    "--rate", metavar="N/s", help="Have running workers re-queue so many at most: 50/s, 10/m."
)
@bulk_options
def redrive(
    session: CliSession,
    targets: tuple[str, ...],
    rate: str | None,
    limit: int,
    change: ChangeOptions,
) -> int:
    """Re-queue dead letters, optionally at a limited rate; their history is kept."""
    from holdfast.admin.jobs import per_second
    from holdfast.storage.id_generator import new_id

    at_rate = None if rate is None else per_second(rate)
    redrive_id = new_id()

    def run_batch(session: CliSession, ids: Sequence[str], change: ChangeOptions) -> list[str]:
        caller, letters = session.caller(change.reason, change.bulk), session.admin.dead_letters
        return session.run(letters.redrive(caller, ids, None, at_rate, redrive_id)).ids

    selection = select(session, "job", targets, limit, lifecycle.REDRIVE.states)
    done = "re-queued" if rate is None else f"to be re-queued at {rate}:"
    action = BulkAction(lifecycle.REDRIVE, done, "job", run_batch)
    return run_bulk_action(session, selection, change, action)


def _drop_jobs(session: CliSession, ids: Sequence[str], change: ChangeOptions) -> list[str]:
    caller = session.caller(change.reason, change.bulk)
    return session.run(session.admin.dead_letters.drop(caller, ids)).ids


add_bulk_command(
    dead,
    "drop",
    "Delete dead letters with their chains; those that other jobs wait for are skipped.",
    BulkAction(lifecycle.DROP, "dropped", "job", _drop_jobs),
    "holdfast dead drop 0193a6f0-7c00-7000-8000-000000000000",
    "holdfast dead drop type:mail.* 'age>90d' --yes --reason 'no longer needed'",
)


@dead.command("show", examples=("holdfast dead show 0193a6f0-7c00-7000-8000-000000000000",))
@show_options
@with_database
def show(session: CliSession, id: str, raw: bool, output: Format) -> None:
    """Show a dead letter: its full error, attempts and input."""
    wanted = session.find_id("job", id)
    found = session.run(session.admin.jobs.get(session.caller(), wanted, raw))
    state = found.job["state"]
    if state != "failed":
        raise WrongState(
            f"job {found.job['id']} is {state}, not a dead letter",
            help=f"see `holdfast jobs show {found.job['id']}`",
        )
    write_job(found, output)
