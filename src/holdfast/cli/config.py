"""`holdfast config`: the effective settings and where each comes from."""

from __future__ import annotations

import click

from holdfast.cli.console import print_warning
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.load_app import load_app
from holdfast.cli.output import Column, Format, output_option, write_records


@click.group("config", cls=HelpGroup, examples=("holdfast config show --origin",))
def command() -> None:
    """Show the effective settings."""


@command.command(
    "show",
    examples=(
        "holdfast config show",
        "holdfast config show --origin | grep -v default",
        "holdfast config show shop.jobs:app --origin",
        "OUTBOX_BATCH_SIZE=20 holdfast config show --origin -o json",
    ),
)
@click.argument("spec", metavar="[APP]", required=False)
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@output_option
def show(spec: str | None, origin: bool, output: Format) -> None:
    """Show all effective settings, without secrets; validates them first.

    Values come from arguments, the environment, holdfast.toml or pyproject.toml, and defaults, in
    this order. With APP, the variables that its job types and cycles use (from_env) follow.
    """
    from holdfast.settings import effective, effective_options, load_settings, unknown_variables

    settings = load_settings()
    found = effective(settings)
    if spec is not None:
        app = load_app(spec)
        found += effective_options([*app.registry, *app.cycle_specs.values()])
    for each in unknown_variables(settings):
        print_warning(f"{each.message} ({each.help})")
    rows = [
        {"name": each.name, "value": each.value} | ({"origin": each.origin} if origin else {})
        for each in found
    ]
    columns = [
        Column("name", lambda row: row["name"]),
        Column("value", lambda row: row["value"]),
    ]
    if origin:
        columns.append(Column("origin", lambda row: row["origin"]))
    write_records(rows, columns, output, id="name")
