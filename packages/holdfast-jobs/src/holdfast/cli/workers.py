"""`holdfast workers` and `holdfast reap`: listing and draining workers, and recovering the jobs of dead ones."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.changes import ChangeOptions, change_named, change_options
from holdfast.cli.console import print_info
from holdfast.cli.lazy import HelpCommand, HelpGroup
from holdfast.cli.output import Column, Format, columns, limit_option, output_option, write_records
from holdfast.cli.session import CliSession, with_database
from holdfast.core.duration import pluralize

if TYPE_CHECKING:
    from holdfast.admin.workers import WorkerFacts
    from holdfast.commands.attempts import ReapReport
    from holdfast.core.records import Reaped

MAX_LISTED = 1_000

_COLOURS = {
    "live": "green",
    "draining": "yellow",
    "silent": "red",
    "vanished": "red",
    "stopped": "bright_black",
}


WORKER_COLUMNS = (
    *columns("id"),
    Column("state", lambda row: row["standing"], lambda row: _COLOURS[row["standing"]]),
    Column("host", lambda row: f"{row['host']}:{row['pid']}"),
    *columns("version", "slots", "held", "seen"),
    Column("processed", lambda row: row["counters"].get("processed", 0)),
    Column("types", lambda row: ", ".join(row["types"])),
)
_REAPED_COLUMNS = (
    *columns("id", "type", "worker", now="state", crashes="crashes"),
    Column("stale ms", lambda row: row["stale_ms"]),
)


@click.group(
    "workers",
    cls=HelpGroup,
    examples=("holdfast workers list", "holdfast workers drain worker-4f1c2a9b7d3e"),
)
def workers() -> None:
    """List and drain workers."""


@workers.command("list", examples=("holdfast workers list", "holdfast workers list --all -o json"))
@click.option("--all", "everyone", is_flag=True, help="Include workers that stopped or vanished.")
@limit_option(100)
@output_option
@with_database
def list_(session: CliSession, everyone: bool, limit: int, output: Format) -> None:
    """List workers, newest first."""
    found = session.run(session.admin.workers.list(session.caller(), everyone, limit + 1))
    shown = found[:limit]
    rows = [worker_record(each) if output == "table" else each.as_json() for each in shown]
    write_records(rows, WORKER_COLUMNS, output, empty="no live workers")
    if len(found) > limit:
        print_info(f"there are more than these {limit}; show them with a higher --limit")


def worker_record(facts: WorkerFacts) -> dict[str, Any]:
    """Return the facts for a terminal."""
    from holdfast.core.duration import format_span

    return {**facts.as_json(), "seen": f"{format_span(facts.now - facts.worker.seen_at)} ago"}


@workers.command(
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
    from holdfast.commands.workers import no_such_worker

    admin, caller = session.admin.workers, session.caller(change.reason)
    known = {each.worker.id for each in session.run(admin.list(caller, limit=MAX_LISTED))}
    for id in ids:
        if id not in known:
            raise no_such_worker(id, known)
    listed = ", ".join(ids)
    words = {"would": f"drain {listed}", "done": f"asked {listed} to drain", "field": "id"}
    change_named(session, change, ids, partial(admin.drain, caller), **words)


@click.command(
    "reap", cls=HelpCommand, examples=("holdfast reap", "holdfast reap --poison-limit 5 -o json")
)
@click.option(
    "--poison-limit",
    type=click.IntRange(1, 1_000),
    help="Worker crashes after which a job becomes a dead letter.  [HOLDFAST_POISON_LIMIT]",
)
@output_option
@with_database
def reap(session: CliSession, poison_limit: int | None, output: Format) -> None:
    """Recover jobs from expired leases, once.

    Workers do this automatically; use the command when no worker is running, or from cron.
    """
    from holdfast.settings import load_settings
    from holdfast.worker.reaper import reap_once

    settings = load_settings({"HOLDFAST_POISON_LIMIT": poison_limit})
    notifier = session.app.notifier
    reaped: list[Reaped] = []

    def on_report(report: ReapReport) -> None:
        reaped.extend(report.page.reaped)
        notifier.send(report.hints())

    session.run(reap_once(session.app.database, settings, on_report, print_wait))
    fields = ("id", "type", "worker", "state", "crashes", "stale_ms")
    rows = [{name: getattr(each, name) for name in fields} for each in reaped]
    write_records(rows, _REAPED_COLUMNS, output)
    dead = sum(each.state == "failed" for each in reaped)
    print_info(f"recovered {pluralize(len(reaped), 'job')}; {dead} became dead letters")


def print_wait(seconds: float) -> None:
    """Say why nothing happens for a moment."""
    print_info(f"workers may be about to come back; giving them {seconds:g} s")
