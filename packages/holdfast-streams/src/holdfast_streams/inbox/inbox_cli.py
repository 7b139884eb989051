"""`holdfast inbox`: where messages of other systems arrive, and what to do with those that were parked."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.changes import ChangeOptions, change_named, change_options
from holdfast.cli.console import print_info
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import (
    Column,
    Format,
    columns,
    first_line,
    limit_option,
    output_option,
    to_seconds,
    write_records,
)
from holdfast.cli.session import CliSession, with_database
from holdfast.core.duration import pluralize

if TYPE_CHECKING:
    from holdfast_streams.inbox.inbox_admin import InboxAdmin

_COLOURS = {"open": "green", "running": "green", "idle": "yellow", "away": "red"}
_COLUMNS = (
    *columns("name", "kind"),
    Column("state", lambda row: row["state"], lambda row: _COLOURS.get(row["state"])),
    *columns("source", "members", "parked"),
    Column("error", lambda row: first_line(row["error"])),
)
_PARKED_COLUMNS = (
    *columns("id", "message_id", "state", "attempts"),
    Column("parked", lambda row: to_seconds(row["parked_at"])),
    Column("error", lambda row: first_line(row["error"])),
)


def _admin(session: CliSession) -> InboxAdmin:
    # Here, because help does without it and is quicker so.
    from holdfast_streams.inbox.inbox_admin import InboxAdmin

    return session.admin.of(InboxAdmin)


@click.group(
    "inbox",
    cls=HelpGroup,
    examples=("holdfast inbox list", "holdfast inbox parked stripe"),
)
def inbox() -> None:
    """Show inboxes of webhooks and brokers; retry or skip what they parked."""


@inbox.command("list", examples=("holdfast inbox list", "holdfast inbox list -o json"))
@output_option
@with_database
def list_(session: CliSession, output: Format) -> None:
    """List inboxes: where their messages come from, whether their broker is reached, and what they parked."""
    from holdfast_streams.inbox.inbox_admin import inbox_json

    rows = [inbox_json(each) for each in session.run(_admin(session).list(session.caller()))]
    empty = "no inboxes found; `holdfast migrate` and workers register those of their application"
    write_records(rows, _COLUMNS, output, id="name", empty=empty)


@inbox.command(
    "parked", examples=("holdfast inbox parked stripe", "holdfast inbox parked stripe -o id")
)
@click.argument("name", metavar="NAME")
@click.option("--state", type=click.Choice(("failed", "due")), help="Only this state.")
@limit_option(50)
@output_option
@with_database
def list_parked(session: CliSession, name: str, state: Any, limit: int, output: Format) -> None:
    """List the messages that an inbox could not take, with their errors."""
    from holdfast_streams.inbox.inbox_admin import parked_message_json

    found = session.run(_admin(session).parked_messages(session.caller(), name, state, limit))
    rows = [parked_message_json(each) for each in found]
    write_records(rows, _PARKED_COLUMNS, output, empty="no parked messages")


def _add_parked(name: str, done: str, text: str) -> None:
    """Add a command that acts on the parked messages of an inbox."""

    @inbox.command(name, help=text, examples=(f"holdfast inbox {name} stripe",))
    @click.argument("inbox_name", metavar="NAME")
    @click.argument("ids", nargs=-1, metavar="[ID]...")
    @change_options
    @with_database
    def change_parked(
        session: CliSession, inbox_name: str, ids: tuple[str, ...], change: ChangeOptions
    ) -> None:
        admin = _admin(session)
        if change.dry_run:
            listed = admin.parked_messages(session.caller(), inbox_name, "failed", 1_000)
            meant = [each for each in session.run(listed) if not ids or each.id in ids]
            print_info(f"would {name} {pluralize(len(meant), 'message')}; nothing was changed")
            return
        act = getattr(admin, name)
        changed = session.run(act(session.caller(change.reason), inbox_name, ids))
        if change.output != "table":
            write_records([{"id": each} for each in changed], (), change.output)
        print_info(f"{pluralize(len(changed), 'message')} {done}")


_add_parked(
    "retry",
    "will be tried again",
    "Have workers take parked messages again: those with the IDs, or all.",
)
_add_parked("skip", "skipped", "Give up parked messages: those with the IDs, or all.")


@inbox.command("remove", examples=("holdfast inbox remove old_shop --reason 'replaced'",))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@change_options
@with_database
def remove(session: CliSession, names: tuple[str, ...], change: ChangeOptions) -> None:
    """Forget inboxes that no process reads, with what they parked."""
    run = partial(_admin(session).remove, session.caller(change.reason))
    listed = ", ".join(names)
    change_named(session, change, names, run, would=f"remove {listed}", done=f"{listed}: removed")
