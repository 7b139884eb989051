"""`holdfast large-values`: read the inputs and results that are in files."""

from __future__ import annotations

import click

from holdfast.cli.lazy import HelpGroup
from holdfast.cli.session import CliSession, with_database


@click.group(
    "large-values",
    cls=HelpGroup,
    examples=(
        "holdfast large-values get 0193a6f0-7c00-7000-8000-000000000000 --app shop:app > input.json",
    ),
)
def large_values() -> None:
    """Read inputs and results that are in files."""


@large_values.command(
    "get",
    examples=(
        "holdfast large-values get 0193a6f0-7c00-7000-8000-000000000000 --app shop:app > input.json",
        "holdfast large-values get 0193a6f0-7c00-7000-8000-000000000000 --result --app shop:app",
    ),
)
@click.argument("id", metavar="ID")
@click.option("--result", is_flag=True, help="Write the result instead of the input.")
@with_database
def get(session: CliSession, id: str, result: bool) -> None:
    """Write the input of a job as JSON, in clear and with its secrets; its file is checked against its digest."""
    from holdfast_files.admin import LargeValueAdmin, Payload

    job = session.find_id("job", id)
    admin = session.admin.of(LargeValueAdmin)
    payload: Payload = "output" if result else "input"
    click.echo(session.run(admin.get(session.caller(), job, payload, raw=True)))
