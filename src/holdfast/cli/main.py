"""The table of commands. Only click and the errors are imported here, so that help is quick."""

from __future__ import annotations

import click

from holdfast.cli.lazy import Entry
from holdfast.cli.root import Root
from holdfast.version import VERSION

SECTIONS = {
    "Get started": {
        "demo": Entry(
            "holdfast.demo.command", "Run a small shop that demonstrates the guarantees."
        ),
        "init": Entry("holdfast.cli.init", "Write a working application with a test."),
        "dev": Entry(
            "holdfast.cli.dev",
            "Run a worker and the dashboard; restart them when a source file changes.",
        ),
    },
    "Run": {
        "worker": Entry(
            "holdfast.cli.worker", "Run an application's jobs and cycles until stopped."
        ),
        "tick": Entry(
            "holdfast.cli.tick",
            "Run one tick and exit; exits 1 if a runner failed or did not stop.",
        ),
        "api": Entry("holdfast.cli.api", "Serve the HTTP API and the dashboard."),
    },
    "Inspect and act": {
        "status": Entry(
            "holdfast.cli.status",
            "Show the queue's status: a one-sentence summary, counts and job types.",
        ),
        "top": Entry(
            "holdfast.cli.top.command",
            "Watch jobs, types, workers, dead letters and cycles live, and act on them.",
        ),
        "jobs": Entry("holdfast.cli.jobs", "List, show, start, retry, cancel and follow jobs."),
        "chains": Entry("holdfast.cli.chains", "List, show, wait for, cancel and delete chains."),
        "dead": Entry("holdfast.cli.dead_letters", "List, show, redrive and drop dead letters."),
        "types": Entry("holdfast.cli.types", "List, pause, resume and configure job types."),
        "events": Entry("holdfast.cli.events", "List and remove event subscriptions."),
        "cycles": Entry("holdfast.cli.cycles", "List, run, pause and resume cycles."),
        "workers": Entry("holdfast.cli.workers", "List and drain workers."),
    },
    "Set up and operate": {
        "migrate": Entry("holdfast.cli.migrate", "Bring the schema up to date."),
        "reap": Entry("holdfast.cli.reap", "Recover jobs from expired leases, once."),
        "doctor": Entry(
            "holdfast.cli.doctor",
            "Check configuration, fleet and database; exits 6 if a check fails.",
        ),
        "audit": Entry("holdfast.cli.audit", "Show the audit log."),
        "adopt": Entry("holdfast.cli.adopt", "Allow jobs in a copied database to run."),
        "token": Entry("holdfast.cli.token", "Create, list and revoke API tokens."),
        "config": Entry("holdfast.cli.config", "Show the effective settings."),
        "explain": Entry("holdfast.cli.explain", "Explain an error code and its fix."),
        "bench": Entry(
            "holdfast.bench.command",
            "Benchmark this machine: `holdfast worker` against hand-written loops in the same run.",
        ),
        "completion": Entry("holdfast.cli.completion", "Print a shell completion script."),
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
