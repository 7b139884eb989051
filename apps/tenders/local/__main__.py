"""`python -m apps.tenders.local`: sources, a push service, an archive, a page and two workers on this machine."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import click
from apps.harness.command import LocalOptions, LocalProcesses, local_options, run_local
from apps.tenders.local.push_server import PushServer
from apps.tenders.local.source_server import SourceServer

from holdfast.cli.exit_codes import Exit
from holdfast.cli.orphan_guard import OrphanGuard
from holdfast_demo.local_application import LOCAL_HOST, clean_environment, listen, print_ready

PORT = 8770
NEVER_HERE = "0 0 29 2 *"
WORKERS = 2
HOME = Path("tenders-demo")
LOG = HOME / "log"
PUSHES = HOME / "pushes"
ARCHIVE = HOME / "archive"
APPLICATION = "tenders.worker:jobs"
OWN_PREFIXES = (
    "TENDERS_",
    "EXPO_",
    "ARCHIVE_",
    "CLEANUP_",
    "DISPATCH_",
    "PUSH_",
    "RECEIPT_",
    "INGEST_",
)


@click.command("tenders", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--tenders",
    type=click.IntRange(2, 190),
    default=30,
    show_default=True,
    help="Tenders that the sources list.",
)
@click.option(
    "--devices",
    type=click.IntRange(1, 10_000),
    default=150,
    show_default=True,
    help="Installations with preferences.",
)
@local_options(PORT, kill="Kill a worker while it holds deliveries.", headless="Any free port.")
def main(options: LocalOptions, tenders: int, devices: int) -> None:
    """Run the whole application on this machine until Ctrl-C, and check what it does.

    It starts over each time; what it has made stays in ./tenders-demo until the next run.
    """
    run_local("tenders", HOME, options, partial(_run, options, tenders, devices))


def _run(options: LocalOptions, tenders: int, devices: int, url: str, guard: OrphanGuard) -> int:
    """Start everything, tell the story, stop everything; return the exit code."""
    with ExitStack() as stack:
        listening = stack.enter_context(listen(options.first_port(PORT)))
        address = f"http://{LOCAL_HOST}:{listening.getsockname()[1]}"
        sources, push = SourceServer(), PushServer(PUSHES)
        stack.callback(sources.close)
        stack.callback(push.close)
        settings = _settings(url, push.start(), sources.variables(sources.start()))
        environment = clean_environment(settings, OWN_PREFIXES)
        processes = LocalProcesses(APPLICATION, environment, LOG, guard)
        stack.callback(processes.stop)
        began = time.monotonic()
        processes.run("tenders", "seed", "--devices", str(devices))
        print_ready(f"tables, {devices} devices", f"{time.monotonic() - began:.1f} s")
        processes.start_web("tenders.web:web", listening)
        for _ in range(WORKERS):
            processes.start_worker()
        print_ready("workers", f"{WORKERS} processes")
        _print_addresses(address, settings)
        # The application's modules read the environment when they are imported, also here.
        os.environ.clear()
        os.environ.update(environment)
        from apps.harness.books import open_books
        from apps.tenders.local.story import Plan, Scene, Story

        from tenders.jobs import jobs

        jobs.bind(url)
        stack.callback(jobs.close)
        engine = open_books(url)
        stack.callback(engine.dispose)
        scene = Scene(processes, sources, push, PUSHES, ARCHIVE, engine, jobs, _say)
        story = Story(Plan(tenders, options.kill), scene)
        is_sound = story.play()
        if not options.exits:
            _say("Ctrl-C stops everything")
            story.narrator.keep_running()
        return Exit.OK if is_sound else Exit.FAILED


def _settings(url: str, push: str, sources: dict[str, str]) -> dict[str, str]:
    """Return the application's settings: the usual ones, with minutes shortened so that it can be watched."""
    return {
        "HOLDFAST_URL": url,
        "WORKER_INTERVAL_MINUTES": "2s",
        "DISPATCH_INTERVAL_MINUTES": "1s",
        "RECEIPT_INTERVAL_MINUTES": "1s",
        "RECEIPT_LEAST_AGE": "1s",
        "PUSH_LEASE": "3s",
        # The worker that is killed may be in the middle of ingest, which then waits for as long.
        "OUTBOX_LEASE_DURATION_MS": "5000",
        "EXPO_URL": push,
        "ARCHIVE_BUCKET": str(ARCHIVE.absolute()),
        "ARCHIVE_KEEP": "1ms",
        # The story says when the night comes, whatever time it is in Chile.
        "CLEANUP_CRON": NEVER_HERE,
        "ARCHIVE_EXPORT_CRON": NEVER_HERE,
        **sources,
    }


def _print_addresses(address: str, settings: dict[str, str]) -> None:
    places = {
        "page": f"{address}/",
        "dashboard": f"{address}/holdfast/",
        "sources": f"{settings['TENDERS_PAGES_URL']}, {settings['TENDERS_API_URL']}",
        "push service": f"{settings['EXPO_URL']} (log: ./{PUSHES})",
        "archive": f"./{ARCHIVE}",
        "log": f"./{LOG}",
    }
    for what, place in places.items():
        print_ready(what, place)


def _say(text: str) -> None:
    click.echo(f"  {text}")


if __name__ == "__main__":
    main()
