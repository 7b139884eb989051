"""`python -m apps.invoicing.local`: the API, two workers, a mail server and a file store on this machine."""

from __future__ import annotations

import json
import os
import secrets
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
from apps.harness.command import LocalOptions, LocalProcesses, local_options, run_local
from apps.invoicing.local.mail_server import MailServer

from holdfast.cli.exit_codes import Exit
from holdfast.cli.orphan_guard import OrphanGuard
from holdfast_demo.local_application import LOCAL_HOST, clean_environment, listen, print_ready

PORT = 8760
APPLICATION = "invoicing.worker:jobs"
OWN_PREFIXES = ("INVOICING_", "INVOICE_", "CLASSES_", "PDF_")
WORKERS = 2
HOME = Path("invoicing-demo")
LOG = HOME / "log"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command."""

    local: LocalOptions
    invoices: int
    output: str

    @property
    def lease_ms(self) -> int:
        """Long enough to be watched, or short."""
        return 3_000 if self.local.headless else 15_000


@click.command("invoicing", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--invoices",
    type=click.IntRange(0, 10_000),
    default=12,
    show_default=True,
    help="Invoices to issue and send through the API.",
)
@local_options(
    PORT, kill="Kill a worker in the middle of its jobs.", headless="Any free port, short lease."
)
@click.option("--url", help="Use this empty database instead: postgresql://… or sqlite:///….")
@click.option(
    "-o",
    "--output",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="With json, one object on stdout and the rest on stderr.",
)
def main(options: LocalOptions, invoices: int, url: str | None, output: str) -> None:
    """Run the whole application on this machine until Ctrl-C, and check what it does.

    It starts over each time; what it has made stays in ./invoicing-demo until the next run.
    """
    if url is not None and options.postgres:
        raise click.UsageError("--postgres and --url exclude each other")
    run = partial(_run, Options(options, invoices, output))
    run_local("invoicing", HOME, options, run, url=url, to_stderr=output == "json")


def _run(options: Options, url: str, guard: OrphanGuard) -> int:
    """Start everything, tell the story, stop everything; return the exit code."""
    with ExitStack() as stack:
        listening = stack.enter_context(listen(options.local.first_port(PORT)))
        address = f"http://{LOCAL_HOST}:{listening.getsockname()[1]}"
        mail = MailServer(HOME / "mail")
        smtp = mail.start()
        stack.callback(mail.close)
        environment = clean_environment(
            _settings(url, address, smtp, options.lease_ms), OWN_PREFIXES
        )
        processes = LocalProcesses(APPLICATION, environment, LOG, guard)
        stack.callback(processes.stop)
        began = time.monotonic()
        processes.run("invoicing", "seed")
        _print_ready(options, "tables, three businesses", f"{time.monotonic() - began:.1f} s")
        processes.start_web("invoicing.api:api", listening)
        victim, *_ = [processes.start_worker() for _ in range(WORKERS)]
        _print_ready(
            options, "workers", f"{WORKERS} processes · lease {options.lease_ms // 1000} s"
        )
        _print_addresses(options, address, smtp)
        # The application's modules read the environment when they are imported, also here.
        os.environ.clear()
        os.environ.update(environment)
        return _tell(stack, options, processes, url, address, victim)


def _tell(
    stack: ExitStack,
    options: Options,
    processes: LocalProcesses,
    url: str,
    address: str,
    victim: str,
) -> int:
    from apps.harness.books import open_books
    from apps.invoicing.local.books import Place
    from apps.invoicing.local.story import Plan, Story

    from invoicing.jobs import jobs

    stack.callback(jobs.close)
    engine = open_books(url)
    stack.callback(engine.dispose)

    def say(text: str) -> None:
        _print(options, f"  {text}")

    story = Story(Plan(options.invoices, options.local.kill), processes, engine, jobs, say)
    is_sound = story.play(address, Place(HOME / "files", HOME / "mail"), victim)
    if options.output == "json":
        facts = {"invoices": options.invoices, "seconds": story.seconds, "sound": is_sound}
        click.echo(json.dumps(facts))
    if not options.local.exits:
        say("Ctrl-C stops everything")
        story.narrator.keep_running()
    return Exit.OK if is_sound else Exit.FAILED


def _settings(url: str, address: str, smtp: str, lease_ms: int) -> dict[str, str]:
    """Return the application's settings; all paths are absolute, as its processes may run anywhere."""
    return {
        "HOLDFAST_URL": url,
        # As in holdfast.toml, which is read in the application's own folder only.
        "HOLDFAST_UNHANDLED_AFTER_MS": "60000",
        "INVOICING_FILES": str((HOME / "files").absolute()),
        "INVOICING_FILES_SECRET": secrets.token_hex(),
        "INVOICING_MAIL": smtp,
        "WORKER_API_BASE_URL": address,
        "WORKER_API_SERVICE_TOKEN": secrets.token_hex(),
        "OUTBOX_LEASE_DURATION_MS": str(lease_ms),
        "OUTBOX_REAPER_INTERVAL_MS": "500",
    }


def _print_addresses(options: Options, address: str, smtp: str) -> None:
    places = {
        "page": f"{address}/",
        "API": f"{address}/docs",
        "dashboard": f"{address}/holdfast/",
        "mailbox": f"./{HOME / 'mail'} ({smtp})",
        "files": f"./{HOME / 'files'}",
        "log": f"./{LOG}",
    }
    for what, place in places.items():
        _print_ready(options, what, place)


def _print_ready(options: Options, what: str, rest: str) -> None:
    print_ready(what, rest, to_stderr=options.output == "json")


def _print(options: Options, text: str) -> None:
    click.echo(text, err=options.output == "json")


if __name__ == "__main__":
    main()
