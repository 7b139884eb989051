"""`holdfast reap`: recovering the jobs of dead workers, without application code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.console import pluralize, print_info
from holdfast.cli.lazy import HelpCommand
from holdfast.cli.output import Column, Format, Record, columns, output_option, write_records
from holdfast.cli.session import CliSession, with_database

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.commands.attempts import ReapReport
    from holdfast.core.records import Reaped
    from holdfast.settings import Settings
    from holdfast.storage.database import Database

_COLUMNS = (
    *columns("id", "type", "worker"),
    Column("now", lambda row: row["state"]),
    Column("crashes", lambda row: row["crashes"]),
    Column("stale ms", lambda row: row["stale_ms"]),
)


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
def command(session: CliSession, poison_limit: int | None, output: Format) -> None:
    """Recover jobs from expired leases, once.

    Workers do this automatically; use the command when no worker is running, or from cron.
    """
    from holdfast.settings import load_settings

    settings = load_settings({"HOLDFAST_POISON_LIMIT": poison_limit})
    notifier = session.app.notifier
    reaped: list[Reaped] = []

    def on_report(report: ReapReport) -> None:
        reaped.extend(report.page.reaped)
        notifier.send(report.hints())

    session.run(_reap(session.app.database, settings, on_report))
    write_records([_row(each) for each in reaped], _COLUMNS, output)
    dead = sum(each.state == "failed" for each in reaped)
    print_info(f"recovered {pluralize(len(reaped), 'job')}; {dead} became dead letters")


async def _reap(
    database: Database, settings: Settings, on_report: Callable[[ReapReport], None]
) -> None:
    from holdfast.worker.clock import SystemClock
    from holdfast.worker.reaper import OutageGuard, reap_all

    own, clock = settings.holdfast, SystemClock()
    link = database.link("reaper", own.statement_timeout_ms)
    guard = OutageGuard(database.store, clock, settings.outbox.reaper_interval_ms / 1000, "")
    try:
        if not await guard.is_calm(link):
            print_info(f"all workers are silent; giving them {guard.interval_s:g} s to come back")
            await clock.sleep(guard.interval_s)
        await reap_all(
            link.run_atomic, database.store, own.reaper_batch, own.poison_limit, on_report
        )
    finally:
        await link.close()


def _row(each: Reaped) -> Record:
    return {
        "id": each.id,
        "type": each.type,
        "worker": each.worker,
        "state": each.state,
        "crashes": each.crashes,
        "stale_ms": each.stale_ms,
    }
