"""`holdfast top`: its options; the screen, which needs textual, is imported when it runs."""

from __future__ import annotations

import click

from holdfast.cli.lazy import HelpCommand
from holdfast.cli.output import interval_option
from holdfast.cli.session import CliSession, with_database
from holdfast.core.errors import CommandUsage, MissingExtra


@click.command(
    "top",
    cls=HelpCommand,
    examples=(
        "holdfast top",
        "holdfast top --read-only --interval 5",
        "holdfast top --filter 'state:failed type:mail.*'",
    ),
)
@click.option("--read-only", is_flag=True, help="Disable all actions.")
@interval_option(0.2)
@click.option("--filter", default="", help="Initial job filter.")
@with_database
def top(session: CliSession, read_only: bool, interval: float, filter: str) -> None:
    """Watch jobs, types, workers, dead letters and cycles live, and act on them.

    Lowercase keys ask for confirmation; uppercase keys do not. Changes are audited.
    """
    import sys

    from holdfast.core.filters import parse_filter

    parse_filter(filter)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandUsage("top needs a terminal", help="use `holdfast status --watch` in pipes")
    try:
        from holdfast_top.screen import TopApp, TopSource
    except ImportError as error:
        raise MissingExtra(
            f"top needs the package {error.name}", help='pip install "holdfast-jobs[top]"'
        ) from error
    source = TopSource(session.gateway, session.caller(), filter)
    session.run(TopApp(source, interval, read_only).run_async())
