"""`holdfast tick`: one tick, for cron and for platforms without long-running processes."""

from __future__ import annotations

from logging import getLogger
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.console import print_info
from holdfast.cli.lazy import HelpCommand
from holdfast.cli.load_app import load_app
from holdfast.cli.logging_setup import log_jobs_option, log_options, set_up_logging
from holdfast.cli.output import Column, Format, columns, output_option, write_json, write_table
from holdfast.cli.serving_process import ForcedExit, exit_now, exit_on_signal, stop_on_signal
from holdfast.cli.session import open_app
from holdfast.cli.worker import check_schema, warn_of_unknown

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.scheduler.runner import TickSummary
    from holdfast.settings import Settings

log = getLogger("holdfast.cli")

_COLUMNS = (
    *columns("runner", "processed", "updated", "skipped"),
    Column("errors", lambda row: row["errors"], lambda row: "red" if row["errors"] else None),
    Column("ms", lambda row: row["durationMs"]),
    Column("note", lambda row: row.get("note")),
)


@click.command(
    "tick",
    cls=HelpCommand,
    examples=(
        "holdfast tick shop.jobs:app",
        "holdfast tick shop.jobs:app --runners outbox,retention",
        "holdfast tick shop.jobs:app -o json | jq .totalProcessed",
    ),
)
@click.argument("spec", metavar="APP")
@click.option(
    "--runners", metavar="A,B,…", help="Only these runners, in this order.  [WORKER_TICK_RUNNERS]"
)
@output_option
@log_options
@log_jobs_option
def command(
    spec: str,
    runners: str | None,
    output: Format,
    log_level: str,
    log_format: str,
    log_jobs: bool,
) -> int:
    """Run one tick and exit; exits 1 if a runner failed or did not stop.

    The reaper always runs first; then outbox, due cycles (concurrently) and retention. The first
    SIGTERM or SIGINT lets running work finish and starts nothing new; the second aborts it.
    """
    from holdfast.settings import load_settings

    exit_on_signal()
    settings = load_settings({"WORKER_TICK_RUNNERS": runners})
    set_up_logging(log_level, log_format, log_jobs)
    app = load_app(spec)
    warn_of_unknown(settings)
    check_schema(app)
    with open_app(app) as session:
        summary = session.run(_tick(app, settings, output))
    _write(summary, output)
    return summary.exit_code


async def _tick(app: Holdfast, settings: Settings, output: Format) -> TickSummary:
    import asyncio

    from holdfast.observe.logging import LoggingObserver

    app.observe(LoggingObserver())
    tick = app.assembly(settings).tick()
    own = settings.worker
    timeout_s = own.shutdown_timeout_ms / 1000
    forced_exit = ForcedExit(lambda: tick.running)

    def stop(_: object) -> None:
        tick.stop()
        asyncio.get_running_loop().call_later(timeout_s, tick.stop)

    stop_on_signal(stop, forced_exit, timeout_s)
    forced_exit.arm(own.tick_overall_max_ms / 1000)
    try:
        summary = await tick.run()
    finally:
        await tick.close()
    if summary.exit_code:
        for name in summary.failed_runners:
            log.error("%s failed: %s", name, summary.runner_results[name].note)
        _write(summary, output)
        exit_now(summary.exit_code, tick.abandoned)
    return summary


def _write(summary: TickSummary, output: Format) -> None:
    found = summary.as_dict()
    match output:
        case "table":
            write_table(_rows(found), _COLUMNS)
        case "id":
            click.echo(summary.run_id)
        case _:
            write_json(found, indent=2 if output == "json" else None)
    failed = summary.failed_runners
    rest = f"; failed: {', '.join(failed)}" if failed else ""
    print_info(f"{summary.total_processed} processed in {summary.duration_ms} ms{rest}")


def _rows(summary: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"runner": name, **each} for name, each in summary["runnerResults"].items()]
