"""`holdfast workers`: listing and draining workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.confirmation import ChangeOptions, change_options
from holdfast.cli.console import print_info
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import Column, Format, Record, columns, output_option, write_records
from holdfast.cli.session import CliSession, with_database
from holdfast.core.errors import WorkerNotFound, nearest

if TYPE_CHECKING:
    from holdfast.admin.workers import WorkerFacts

MOST = 1_000

_COLOURS = {"live": "green", "draining": "yellow", "silent": "red", "stopped": "bright_black"}


def _colour(row: Record) -> str | None:
    return _COLOURS[row["standing"]]


_COLUMNS = (
    Column("id", lambda row: row["id"]),
    Column("state", lambda row: row["standing"], _colour),
    Column("host", lambda row: f"{row['host']}:{row['pid']}"),
    *columns("version", "slots", "held", "seen"),
    Column("processed", lambda row: row["counters"].get("processed", 0)),
    Column("types", lambda row: ", ".join(row["types"])),
)


@click.group(
    "workers",
    cls=HelpGroup,
    examples=("holdfast workers list", "holdfast workers drain worker-4f1c2a9b7d3e"),
)
def command() -> None:
    """List and drain workers."""


@command.command("list", examples=("holdfast workers list", "holdfast workers list --all -o json"))
@click.option("--all", "everyone", is_flag=True, help="Include stopped workers.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=100,
    show_default=True,
    help="Maximum rows.",
)
@output_option
@with_database
def list_(session: CliSession, everyone: bool, limit: int, output: Format) -> None:
    """List workers, newest first."""
    found = session.run(session.admin.workers.list(session.caller(), everyone, limit))
    write_records([_row(each) for each in found], _COLUMNS, output)
    if not found:
        print_info("no live workers")


def _row(facts: WorkerFacts) -> dict[str, Any]:
    from holdfast.core.duration import spoken

    return {**facts.as_json(), "seen": f"{spoken(facts.now - facts.worker.seen_at)} ago"}


@command.command(
    "drain",
    examples=(
        "holdfast workers drain worker-4f1c2a9b7d3e --reason 'replacing the host'",
        "holdfast workers list -o id | xargs holdfast workers drain",
    ),
)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@change_options
@with_database
def drain(session: CliSession, ids: tuple[str, ...], change: ChangeOptions) -> None:
    """Ask workers to claim no more jobs, finish those they run, and exit.

    Takes effect immediately if hints arrive, otherwise at the next heartbeat.
    """
    admin, caller = session.admin.workers, session.caller(change.reason)
    known = {each.worker.id for each in session.run(admin.list(caller, limit=MOST))}
    for id in ids:
        if id not in known:
            near = nearest(id, known)
            raise WorkerNotFound(f"there is no live worker {id[:60]}", help=near or None)
    for id in ids:
        if change.dry_run:
            print_info(f"would drain {id}; nothing was changed")
        else:
            session.run(admin.drain(caller, id))
            print_info(f"asked {id} to drain")
