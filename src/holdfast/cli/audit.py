"""`holdfast audit`: the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import (
    Column,
    Format,
    after_option,
    output_option,
    page_length_option,
    to_seconds,
    write_page,
)
from holdfast.cli.session import CliSession, with_database

if TYPE_CHECKING:
    pass

_COLUMNS = (
    Column("at", lambda row: to_seconds(row["at"])),
    Column("who", lambda row: row["actor"]),
    Column("role", lambda row: row["role"]),
    Column("did", lambda row: row["action"]),
    Column("to", lambda row: row["target"]),
    Column("why", lambda row: row["reason"]),
)


@click.group(
    "audit",
    cls=HelpGroup,
    examples=("holdfast audit list", "holdfast audit list --actor ana -o json"),
)
def command() -> None:
    """Show the audit log."""


@command.command(
    "list",
    examples=(
        "holdfast audit list",
        "holdfast audit list --action type.pause",
        "holdfast audit list --target 'job 0193a6f0-7c00-7000-8000-000000000000'",
    ),
)
@click.option("--actor", help="Only changes by this user or token.")
@click.option("--action", help="Only this action, e.g. job.cancel.")
@click.option("--target", help="Only changes to this target.")
@page_length_option
@after_option
@output_option
@with_database
def list_(
    session: CliSession,
    actor: str | None,
    action: str | None,
    target: str | None,
    limit: int,
    after: str | None,
    output: Format,
) -> None:
    """List manual changes, newest first."""
    page = session.run(
        session.admin.audit.page(
            session.caller(), limit, after, actor=actor, action=action, target=target
        )
    )
    write_page("changes", page.items, page.next, _COLUMNS, output)
