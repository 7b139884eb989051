"""The table of commands. Only click and the errors are imported here, so that help is quick."""

from __future__ import annotations

import click

from holdfast.cli.lazy import LazyCommand
from holdfast.cli.root import Root
from holdfast.version import VERSION

SECTIONS = {
    "Get started": {
        "demo": LazyCommand(
            "holdfast.demo.command", "Run a small shop that demonstrates the guarantees."
        ),
        "init": LazyCommand("holdfast.cli.init", "Write a working application with a test."),
        "dev": LazyCommand(
            "holdfast.cli.dev",
            "Run a worker and the dashboard; restart them when a source file changes.",
        ),
    },
    "Run": {
        "worker": LazyCommand(
            "holdfast.cli.worker", "Run an application's jobs and cycles until stopped."
        ),
        "tick": LazyCommand(
            "holdfast.cli.tick",
            "Run one tick and exit; exits 1 if a runner failed or did not stop.",
        ),
        "api": LazyCommand("holdfast.cli.api", "Serve the HTTP API and the dashboard."),
    },
    "Inspect and act": {
        "status": LazyCommand(
            "holdfast.cli.status",
            "Show the queue's status: a one-sentence summary, counts and job types.",
        ),
        "top": LazyCommand(
            "holdfast.cli.top.command",
            "Watch jobs, types, workers, dead letters and cycles live, and act on them.",
        ),
        "jobs": LazyCommand(
            "holdfast.cli.jobs", "List, show, start, retry, cancel and follow jobs."
        ),
        "chains": LazyCommand(
            "holdfast.cli.chains", "List, show, wait for, cancel and delete chains."
        ),
        "dead": LazyCommand(
            "holdfast.cli.dead_letters", "List, show, redrive and drop dead letters."
        ),
        "types": LazyCommand("holdfast.cli.types", "List, pause, resume and configure job types."),
        "events": LazyCommand("holdfast.cli.events", "List and remove event subscriptions."),
        "cycles": LazyCommand("holdfast.cli.cycles", "List, run, pause and resume cycles."),
        "workers": LazyCommand("holdfast.cli.workers", "List and drain workers."),
    },
    "Set up and operate": {
        "migrate": LazyCommand("holdfast.cli.migrate", "Bring the schema up to date."),
        "reap": LazyCommand("holdfast.cli.reap", "Recover jobs from expired leases, once."),
        "doctor": LazyCommand(
            "holdfast.cli.doctor",
            "Check configuration, fleet and database; exits 6 if a check fails.",
        ),
        "audit": LazyCommand("holdfast.cli.audit", "Show the audit log."),
        "adopt": LazyCommand("holdfast.cli.adopt", "Allow jobs in a copied database to run."),
        "token": LazyCommand("holdfast.cli.token", "Create, list and revoke API tokens."),
        "config": LazyCommand("holdfast.cli.config", "Show the effective settings."),
        "explain": LazyCommand("holdfast.cli.explain", "Explain an error code and its fix."),
        "bench": LazyCommand(
            "holdfast.bench.command",
            "Benchmark this machine: `holdfast worker` against hand-written loops in the same run.",
        ),
        "completion": LazyCommand("holdfast.cli.completion", "Print a shell completion script."),
    },
}


@click.group(
    cls=Root,
    sections=SECTIONS,
    examples=("holdfast demo", "holdfast status", "holdfast jobs list state:failed"),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(VERSION, prog_name="holdfast", message="%(prog)s %(version)s")
def cli() -> None:
    """Durable jobs, outbox events and scheduled tasks on the database you already have.

    Data goes to stdout, messages to stderr. Exit codes: 0 ok · 1 failed · 2 usage or configuration ·
    3 not found · 4 rejected · 5 partial · 6 check failed · 7 database unreachable or schema too
    old · 124 timed out.
    """


def main() -> None:
    """Run the command line of this process."""
    cli(prog_name="holdfast")


if __name__ == "__main__":
    main()
