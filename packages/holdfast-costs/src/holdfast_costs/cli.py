"""`holdfast costs`: what limits that count costs use."""

from __future__ import annotations

import click

from holdfast.cli.completion import complete_type
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import Format, columns, output_option, write_records
from holdfast.cli.session import CliSession, with_database

_COLUMNS = columns("type", "key", "used", "max", "per", "left")


@click.group(
    "costs", cls=HelpGroup, examples=("holdfast costs list", "holdfast costs list llm.ask -o json")
)
def costs() -> None:
    """Show what limits that count costs use."""


@costs.command("list", examples=("holdfast costs list", "holdfast costs list llm.ask -o json"))
@click.argument("type", required=False, shell_complete=complete_type)
@output_option
@with_database
def list_(session: CliSession, type: str | None, output: Format) -> None:
    """List limits and rates that count costs, with what is used and left; the fullest come first."""
    # Here, because help does without it and is quicker so.
    from holdfast_costs.admin import CostAdmin, usage_json

    found = session.run(session.admin.of(CostAdmin).list(session.caller(), type))
    rows = [usage_json(each) for each in found]
    empty = "" if rows else "no live worker declares limits that count costs"
    write_records(rows, _COLUMNS, output, id="type", empty=empty)
