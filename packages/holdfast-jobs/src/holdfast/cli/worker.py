"""`holdfast worker` and `holdfast tick`: running an application's jobs and cycles, until stopped or once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from logging import getLogger
from typing import TYPE_CHECKING

import click

from holdfast.cli.console import print_info, print_warning
from holdfast.cli.lazy import HelpCommand
from holdfast.cli.output import (
    Column,
    Format,
    columns,
    flag_column,
    output_option,
    write_single,
    write_table,
)
from holdfast.cli.serving_process import (
    ForcedExit,
    exit_now,
    exit_on_signal,
    find_uvloop,
    log_jobs_option,
    log_options,
    set_up_logging,
    slots_option,
    stop_on_signal,
    tune_interpreter,
)
from holdfast.cli.session import app_argument, check_schema, load_app, open_app
from holdfast.core.duration import pluralize
from holdfast.core.errors import (
    CommandUsage,
    DatabaseUnreachable,
    MissingExtra,
    UnknownJobType,
    nearest,
)

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Sequence

    from holdfast.app import Holdfast
    from holdfast.core.registry import JobType
    from holdfast.scheduler.background import Background, BackgroundReport
    from holdfast.scheduler.runner import TickSummary
    from holdfast.settings import Settings
    from holdfast.worker.worker import Worker, WorkerReport

RATE_WAIT_MS = 60_000
"""A drain waits for rates whose periods are no longer."""
MAX_COUNTED = 100_000


@click.command(
    "worker",
    cls=HelpCommand,
    examples=(
        "holdfast worker shop.jobs:app",
        "holdfast worker shop.jobs:app --slots 20 --types 'mail.*,pdf.render'",
        "holdfast worker shop.jobs:app --processes 4 --probe-port 9000   # probes on 9000 to 9003",
        "holdfast worker shop.jobs:app --drain    # until nothing is due",
        "holdfast worker shop.jobs:app --reload   # while you change it",
    ),
)
@app_argument(required=True)
@slots_option
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    help="Worker processes to supervise.  [HOLDFAST_PROCESSES]",
)
@click.option("--types", metavar="A,B,…", help="Only these job types; * matches anything.")
@click.option(
    "--drain", is_flag=True, help="Exit when nothing is due or running; wait for rates up to 1m."
)
@click.option("--reload", is_flag=True, help="Restart when a source file below changes.")
@click.option("--name", help="Prefix of the worker's id.  [HOLDFAST_WORKER_NAME]")
@click.option(
    "--probe-port",
    type=click.IntRange(0, 65_535),
    help="Serve /livez, /readyz and /metrics on this port; several processes on this one and the next.",
)
@click.option("--probe-host", default="127.0.0.1", show_default=True, help="The probes' address.")
@click.option("--supervisor-pipe", type=int, hidden=True, help="Stop when this pipe closes.")
@log_options
@log_jobs_option
def worker(
    spec: str,
    slots: int | None,
    processes: int | None,
    types: str | None,
    drain: bool,
    reload: bool,
    name: str | None,
    probe_port: int | None,
    probe_host: str,
    supervisor_pipe: int | None,
    log_level: str,
    log_format: str,
    log_jobs: bool,
) -> int:
    """Run an application's jobs and cycles until stopped.

    The first SIGTERM or SIGINT lets running handlers finish and releases unstarted jobs; the
    second aborts the handlers. Exits 0 only if nothing had to be abandoned.
    """
    from holdfast.settings import load_settings

    if reload:
        return _run_reloading()
    exit_on_signal()
    set_up_logging(log_level, log_format, log_jobs)
    given = {"SLOTS": slots, "PROCESSES": processes, "WORKER_NAME": name}
    arguments = {f"HOLDFAST_{each}": value for each, value in given.items()}
    settings, app = load_settings(arguments), load_app(spec)
    defaults = app.default_settings()
    if more := {name: defaults[name] for name in defaults.keys() - settings.given}:
        settings = load_settings({**arguments, **more})
    warn_of_unknown(settings)
    chosen = select_types(app, types)
    if drain:
        # A script that waits for the drain would wait for a database that may never come.
        check_schema(app, f" --app {spec}")
    else:
        check_schema_if_reachable(app, spec)
    if settings.holdfast.processes > 1:
        return _supervise(settings.holdfast.processes, probe_port)
    parts = [pluralize(settings.holdfast.slots, "slot"), pluralize(len(chosen), "job type")]
    if app.cycle_specs and not drain:
        parts.append(pluralize(len(app.cycle_specs), "cycle"))
    new_loop = find_uvloop(settings.holdfast.uvloop)
    if new_loop is not None:
        parts.append("uvloop")
    print_info(f"worker · {' · '.join(parts)} · {app.database.url}")
    probes = None if probe_port is None else (probe_host, probe_port)
    return _run(app, settings, list(chosen), drain, probes, new_loop, supervisor_pipe).exit_code


def _supervise(processes: int, probe_port: int | None) -> int:
    """Run this very command in several processes of one worker each. Raises: CommandUsage."""
    import asyncio

    from holdfast.cli.systemd import ServiceNotifier
    from holdfast.observe.logging import LoggingObserver
    from holdfast.worker.supervisor import Supervisor

    # The other end closes with this process, however it ends.
    pipe, _ = os.pipe()
    arguments = [*sys.argv[1:], "--supervisor-pipe", str(pipe)]
    commands = [
        [sys.executable, "-m", "holdfast", *single_process(arguments, number, probe_port)]
        for number in range(processes)
    ]
    if probe_port and probe_port + processes > 65_536:
        raise CommandUsage(
            f"{processes} processes need the ports from {probe_port} to {probe_port + processes - 1}",
            help=f"choose a --probe-port up to {65_536 - processes}",
        )

    notifier, started = ServiceNotifier(), set[int]()

    def on_started(pid: int) -> None:
        print_info(f"worker process started: pid {pid}, {processes} in total")
        started.add(pid)
        if len(started) == processes:
            notifier.send("READY=1")

    async def run() -> int:
        supervisor = Supervisor(commands, LoggingObserver(), on_started, [pipe])

        def stop(number: signal.Signals) -> None:
            notifier.send("STOPPING=1")
            supervisor.pass_on(number)

        stop_on_signal(stop)
        async with notifier.keep_alive(lambda act: act()):
            return await supervisor.run()

    return asyncio.run(run())


def _run_reloading() -> int:
    """Run this very command in a process that is restarted when a source file changes."""
    from holdfast.cli.dev import run_reloading

    words = [each for each in sys.argv[1:] if each != "--reload"]
    return run_reloading([("worker", "cyan", words)])


def single_process(
    arguments: Sequence[str], number: int = 0, probe_port: int | None = None
) -> list[str]:
    """Return a worker's arguments for one of several processes; of an option given twice the last one counts.

    Each has a probe port of its own, counted from the given one.
    """
    port = ["--probe-port", str(probe_port + number)] if probe_port else []
    return [*arguments, "--processes", "1", *port]


def warn_of_unknown(settings: Settings) -> None:
    """Warn about misspelled settings; the application comes first, since it may use names of its own."""
    from holdfast.settings import unknown_variables

    for each in unknown_variables(settings):
        print_warning(f"{each.message} ({each.help})")


def select_types(app: Holdfast, types: str | None) -> dict[str, JobType]:
    """Return the handled types that a list of names and patterns means. Raises: CommandUsage, UnknownJobType."""
    app.registry.check()
    handled = {each.name: each for each in app.registry if each.handler is not None}
    if not handled and not app.cycle_specs and not app.attached:
        raise CommandUsage(
            "the application has no handlers",
            help="register some with @app.job, @app.on or @app.cycle",
        )
    if types is None:
        return handled
    patterns = [each.strip() for each in types.split(",") if each.strip()]
    if not patterns:
        raise CommandUsage("--types names no job type", help="omit it to run all")
    chosen: dict[str, JobType] = {}
    for pattern in patterns:
        found = {name: each for name, each in handled.items() if fnmatchcase(name, pattern)}
        if not found:
            known = f"handled types: {', '.join(sorted(handled))}"
            raise UnknownJobType(
                f"no handler for {pattern[:60]!r}", help=nearest(pattern, handled) or known
            )
        chosen |= found
    return chosen


def check_schema_if_reachable(app: Holdfast, spec: str) -> None:
    """Reject a schema that this code does not support; an unreachable database is only a warning."""
    try:
        check_schema(app, f" --app {spec}")
    except DatabaseUnreachable as error:
        # A worker may start before its database; it begins once the database is reachable.
        print_warning(f"{error.message}; waiting for it")


def _run(
    app: Holdfast,
    settings: Settings,
    types: list[str],
    drain: bool,
    probes: tuple[str, int] | None,
    new_loop: Callable[[], AbstractEventLoop] | None,
    supervisor_pipe: int | None,
) -> BackgroundReport | WorkerReport:
    import asyncio

    from holdfast.cli.systemd import ServiceNotifier
    from holdfast.observe.logging import LoggingObserver

    notifier = ServiceNotifier()
    app.observe(LoggingObserver())
    app.observe(notifier)

    async def run() -> BackgroundReport | WorkerReport:
        try:
            # The probes observe what happens, so they are there before the worker is made.
            async with _serve_probes(app, settings, probes):
                mode: Background | Worker
                if drain:
                    await _recover(app, settings)
                    mode = worker = _drain_worker(app, settings, types)
                else:
                    mode = app.assembly(settings, types).background()
                    worker = mode.worker
                forced_exit = ForcedExit(lambda: mode.holding, worker.expect_end)
                worker.on_hopeless(lambda: exit_now(1, mode.holding))
                timeout_s = settings.worker.shutdown_timeout_ms / 1000
                stop_on_signal(lambda number: mode.stop(number.name), forced_exit, timeout_s)
                if supervisor_pipe is not None:
                    forced_exit.stop_after(supervisor_pipe)
                tune_interpreter(app.database.store.dialect)
                async with notifier.keep_alive(worker.answer):
                    report = await mode.run()
                if drain and report.reason == "idle":
                    await _print_left(app, types)
                if report.exit_code:
                    exit_now(report.exit_code, mode.holding)
                return report
        finally:
            await app.aclose()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(run())


@asynccontextmanager
async def _serve_probes(
    app: Holdfast, settings: Settings, probes: tuple[str, int] | None
) -> AsyncIterator[None]:
    if probes is None:
        yield
        return
    try:
        from holdfast.web.http_server import serve_probes
    except ImportError as error:
        raise MissingExtra(
            "probes need starlette and uvicorn", help='pip install "holdfast-jobs[web]"'
        ) from error
    async with serve_probes(app, settings, *probes) as address:
        print_info(f"probes on {address}livez, {address}readyz and {address}metrics")
        yield


async def _recover(app: Holdfast, settings: Settings) -> None:
    """Make due what killed workers have left: a drain may end before its reaper knows that they are gone."""
    from holdfast.cli.workers import print_wait
    from holdfast.worker.reaper import reap_once

    notifier = app.notifier
    await reap_once(
        app.database, settings, lambda report: notifier.send(report.hints()), print_wait
    )


def _drain_worker(app: Holdfast, settings: Settings, types: list[str]) -> Worker:
    from holdfast.worker.options import worker_options

    options = replace(worker_options(settings), stop_when_idle=True, rate_wait_ms=RATE_WAIT_MS)
    return app.make_worker(options, types=types)


async def _print_left(app: Holdfast, types: list[str]) -> None:
    """Say of each type how many due jobs a drain leaves, and what they may wait for."""
    due = await app.database.read_async(app.database.store.workers.due(types, MAX_COUNTED))
    for name, number in sorted(due.items()):
        flow = app.registry.get(name).flow
        held = "their rate or a pause" if flow and flow.has_rate else "a limit or a pause"
        if number:
            more = "+" * (number == MAX_COUNTED)
            print_info(f"left {pluralize(number, 'due job', more)} of {name}, held by {held}")


log = getLogger("holdfast.cli")

_RUNNER_COLUMNS = (
    *columns("runner", "processed", "updated", "skipped"),
    flag_column("errors", "red"),
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
@app_argument(required=True)
@click.option(
    "--runners", metavar="A,B,…", help="Only these runners, in this order.  [WORKER_TICK_RUNNERS]"
)
@output_option
@log_options
@log_jobs_option
def tick(
    spec: str, runners: str | None, output: Format, log_level: str, log_format: str, log_jobs: bool
) -> int:
    """Run one tick and exit; exits 1 if a runner failed or did not stop.

    The reaper always runs first; then due schedules, outbox, cycles (concurrently), retention. The first
    SIGTERM or SIGINT lets running work finish and starts nothing new; the second aborts it.
    """
    from holdfast.settings import load_settings

    exit_on_signal()
    set_up_logging(log_level, log_format, log_jobs)
    settings = load_settings({"WORKER_TICK_RUNNERS": runners})
    app = load_app(spec)
    warn_of_unknown(settings)
    check_schema(app, f" --app {spec}")
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
    rows = [{"runner": name, **each} for name, each in found["runnerResults"].items()]
    write_single(found, output, lambda: write_table(rows, _RUNNER_COLUMNS), id="runId")
    failed = summary.failed_runners
    rest = f"; failed: {', '.join(failed)}" if failed else ""
    print_info(f"{summary.total_processed} processed in {summary.duration_ms} ms{rest}")
