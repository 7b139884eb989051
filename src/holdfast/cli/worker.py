"""`holdfast worker`: a process that runs an application's jobs until it is told to stop."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from holdfast.cli.lazy import Command
from holdfast.cli.loading import load_app
from holdfast.cli.logs import log_options, set_up_logging
from holdfast.cli.talk import say, warn
from holdfast.core.errors import CommandUsage, DatabaseUnreachable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.app import Holdfast
    from holdfast.core.jobtype import JobType
    from holdfast.settings import Settings
    from holdfast.worker.worker import Worker, WorkerReport


@click.command(
    "worker",
    cls=Command,
    examples=(
        "holdfast worker shop.jobs:app",
        "holdfast worker shop.jobs:app --slots 20 --types 'mail.*,pdf.render'",
        "holdfast worker shop.jobs:app --drain    # until nothing is due",
    ),
)
@click.argument("spec", metavar="APP")
@click.option("--slots", type=click.IntRange(1, 1_000), help="Handlers at once.  [HOLDFAST_SLOTS]")
@click.option("--types", metavar="A,B,…", help="Only these job types; * stands for any text.")
@click.option("--drain", is_flag=True, help="End when nothing is due and nothing runs.")
@click.option("--name", help="First part of the worker's id.  [HOLDFAST_WORKER_NAME]")
@log_options
def command(
    spec: str,
    slots: int | None,
    types: str | None,
    drain: bool,
    name: str | None,
    log_level: str,
    log_format: str,
) -> int:
    """Run an application's jobs until told to stop.

    The first SIGTERM or SIGINT lets running handlers end and gives back what has not begun; the
    second tells the handlers to stop now. Exits 0 only when nothing had to be abandoned.
    """
    from holdfast.settings import load_settings

    settings = load_settings({"HOLDFAST_SLOTS": slots, "HOLDFAST_WORKER_NAME": name})
    set_up_logging(log_level, log_format)
    for each in settings.warnings:
        warn(f"{each.message} ({each.help})")
    app = load_app(spec)
    chosen = chosen_types(app, types)
    _check_schema(app)
    worker = build_worker(app, chosen, settings, drain)
    say(f"worker {worker.id} · {settings.holdfast.slots} slots · {len(chosen)} job types")
    report = _run(app, worker)
    if report.abandoned:
        # A handler that obeys nobody would keep its thread, and with it the process.
        sys.stderr.flush()
        os._exit(report.exit_code)
    return report.exit_code


def chosen_types(app: Holdfast, types: str | None) -> dict[str, JobType]:
    """Return the handled types that a list of names and patterns means. Raises: UnknownJobType, CommandUsage."""
    app.registry.check()
    handled = {each.name: each for each in app.registry if each.handler is not None}
    if not handled:
        raise CommandUsage(
            "the application has no handlers", help="register some with @app.job or @app.on"
        )
    if types is None:
        return handled
    chosen: dict[str, JobType] = {}
    for pattern in filter(None, (each.strip() for each in types.split(","))):
        found = {name: each for name, each in handled.items() if fnmatchcase(name, pattern)}
        if not found:
            app.registry.get(pattern)
            raise CommandUsage(f"nothing here handles {pattern}")
        chosen |= found
    return chosen


def build_worker(
    app: Holdfast, types: Mapping[str, JobType], settings: Settings, drain: bool = False
) -> Worker:
    """Put a worker together as the settings say. Raises: HF017, HF018, HF019."""
    from holdfast.observe.logging import LoggingObserver
    from holdfast.settings import worker_options
    from holdfast.worker.options import WorkerOptions
    from holdfast.worker.worker import Worker

    options = replace(WorkerOptions(**worker_options(settings)), stop_when_idle=drain)
    return Worker(
        app.database,
        types,
        options,
        notifier=app.notifier,
        observer=LoggingObserver(),
        type_of=app.registry.find,
    )


def _check_schema(app: Holdfast) -> None:
    try:
        app.database.check()
    except DatabaseUnreachable as error:
        # A worker may be up before its database; it waits, and works when the database answers.
        warn(f"{error.message}; waiting for it")


def _run(app: Holdfast, worker: Worker) -> WorkerReport:
    import asyncio

    async def run() -> WorkerReport:
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, worker.stop, each.name)
        try:
            return await worker.run()
        finally:
            await app.aclose()

    return asyncio.run(run())
