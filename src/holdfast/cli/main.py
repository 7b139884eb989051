"""The entry point: the table of commands. Only click and the errors are imported here, so that help is quick."""

from __future__ import annotations

import click

from holdfast.cli.lazy import Entry
from holdfast.cli.root import Root
from holdfast.version import VERSION

SECTIONS = {
    "Begin": {
        "demo": Entry("holdfast.demo.command", "Run a small shop that shows what is promised."),
        "init": Entry("holdfast.cli.init", "Write a working application with a test."),
        "dev": Entry(
            "holdfast.cli.dev",
            "Run worker and dashboard, and restart them when a source file changes.",
        ),
    },
    "Run": {
        "worker": Entry(
            "holdfast.cli.worker", "Run an application's jobs and cycles until told to stop."
        ),
        "tick": Entry(
            "holdfast.cli.tick",
            "Run one pass over all runners and end: exits 1 when one of them failed or did not stop.",
        ),
        "api": Entry("holdfast.cli.api", "Serve the HTTP API and the dashboard."),
    },
    "Look and act": {
        "status": Entry(
            "holdfast.cli.status",
            "Say how the queue stands: one sentence, figures, and job types.",
        ),
        "top": Entry(
            "holdfast.cli.top.command",
            "Watch jobs, types, workers, dead letters and cycles live, and act on them.",
        ),
        "jobs": Entry("holdfast.cli.jobs", "List, show, start, retry, cancel and follow jobs."),
        "chains": Entry("holdfast.cli.chains", "List, show, await, cancel and delete chains."),
        "dead": Entry("holdfast.cli.dead_letters", "List, show, redrive and drop dead letters."),
        "types": Entry("holdfast.cli.types", "List, pause, resume and set job types."),
        "events": Entry(
            "holdfast.cli.events", "List who subscribes to which event, and remove a subscription."
        ),
        "cycles": Entry("holdfast.cli.cycles", "List, run, pause and resume cycles."),
        "workers": Entry("holdfast.cli.workers", "List workers, and ask one to stop."),
    },
    "Set up and operate": {
        "migrate": Entry("holdfast.cli.migrate", "Bring the schema up to date."),
        "reap": Entry(
            "holdfast.cli.reap", "Take back the jobs of expired leases, of all types, once."
        ),
        "doctor": Entry(
            "holdfast.cli.doctor",
            "Check configuration, fleet and database; exits 6 when something does not work.",
        ),
        "audit": Entry("holdfast.cli.audit", "Show who did what, and why."),
        "adopt": Entry(
            "holdfast.cli.adopt", "Say that a copied database is meant to be worked off."
        ),
        "token": Entry("holdfast.cli.token", "Make, list and revoke tokens of the API."),
        "config": Entry("holdfast.cli.config", "Show the effective settings."),
        "explain": Entry(
            "holdfast.cli.explain", "Say what an error code means and how to mend it."
        ),
        "bench": Entry(
            "holdfast.bench.command",
            "Measure this machine: `holdfast worker` beside hand-written loops in the same run.",
        ),
        "completion": Entry("holdfast.cli.completion", "Print the completion script of a shell."),
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
    """Durable jobs, outbox events and scheduled cycles on the database you already have.

    Data goes to stdout, talk to stderr. Exit codes: 0 ok · 1 failed · 2 usage or configuration ·
    3 not found · 4 refused · 5 partly · 6 check not met · 7 database unreachable or schema too
    old · 124 timed out.
    """


def main() -> None:
    """Run the command line of this process."""
    cli(prog_name="holdfast")


if __name__ == "__main__":
    main()
