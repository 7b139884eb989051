"""`holdfast config`: the effective settings and where each comes from."""

from __future__ import annotations

import click

from holdfast.cli.console import print_warning
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import Column, Format, output_option, write_records


@click.group("config", cls=HelpGroup, examples=("holdfast config show --origin",))
def command() -> None:
    """Show the effective settings."""


@command.command(
    "show",
    examples=(
        "holdfast config show",
        "holdfast config show --origin | grep -v default",
        "OUTBOX_BATCH_SIZE=20 holdfast config show --origin -o json",
    ),
)
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@output_option
def show(origin: bool, output: Format) -> None:
    """Show all effective settings, without secrets; validates them first.

    Values come from arguments, the environment, holdfast.toml or pyproject.toml, and defaults, in
    this order.
    """
    from holdfast.settings import effective, load_settings

    settings = load_settings()
    for each in settings.warnings:
        print_warning(f"{each.message} ({each.help})")
    rows = [
        {"name": each.name, "value": each.value} | ({"origin": each.origin} if origin else {})
        for each in effective(settings)
    ]
    columns = [
        Column("name", lambda row: row["name"]),
        Column("value", lambda row: row["value"]),
    ]
    if origin:
        columns.append(Column("origin", lambda row: row["origin"]))
    write_records(rows, columns, output, id="name")
