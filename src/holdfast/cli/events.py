"""`holdfast events`: listing event subscriptions, and removing those whose handler is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.confirmation import ChangeOptions, change_options, confirm_change
from holdfast.cli.console import pluralize, print_info, print_warning
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import (
    Column,
    Format,
    Record,
    columns,
    output_option,
    to_seconds,
    write_records,
)
from holdfast.cli.session import CliSession, with_database
from holdfast.core.errors import SubscriptionNotFound, nearest

if TYPE_CHECKING:
    from holdfast.commands.subscriptions import RemovedSubscription


def _colour(row: Record) -> str | None:
    return None if row["workers"] else "red"


_COLUMNS = (
    *columns("event", "handler"),
    Column("since", lambda row: to_seconds(row["created_at"])),
    Column("workers", lambda row: row["workers"] or "none", _colour),
    Column("live", lambda row: row["live"]),
)


@click.group(
    "events",
    cls=HelpGroup,
    examples=(
        "holdfast events subscriptions",
        "holdfast events unsubscribe order.placed mail_receipt --reason 'handler was removed'",
    ),
)
def command() -> None:
    """List and remove event subscriptions."""


@command.command(
    "subscriptions",
    examples=("holdfast events subscriptions", "holdfast events subscriptions -o json"),
)
@output_option
@with_database
def subscriptions(session: CliSession, output: Format) -> None:
    """List which handler receives which event, since when, and how many live workers handle it."""
    rows = _rows(session)
    write_records(rows, _COLUMNS, output, id="type")
    if not rows:
        print_info("no subscriptions")


@command.command(
    "unsubscribe",
    examples=(
        "holdfast events unsubscribe order.placed mail_receipt",
        "holdfast events unsubscribe order.placed mail_receipt --yes --reason 'handler was removed'",
    ),
)
@click.argument("event")
@click.argument("handler")
@change_options
@with_database
def unsubscribe(session: CliSession, event: str, handler: str, change: ChangeOptions) -> None:
    """Stop delivering an event to a handler that was removed from the code.

    Jobs already delivered remain. A worker that still has the handler subscribes it again when it
    starts.
    """
    row = _get_subscription(session, event, handler)
    if not change.dry_run and row["workers"]:
        print_warning(f"a live worker has {handler} and will subscribe it again at its next start")
    if not confirm_change(change, "remove", "subscription", [row], _COLUMNS, many=True, id="type"):
        return
    done = session.run(
        session.admin.subscriptions.remove(session.caller(change.reason), event, handler)
    )
    write_records([row], _COLUMNS, change.output, id="type")
    print_info(f"{event} is no longer delivered to {handler}")
    _print_remaining(done)


def _get_subscription(session: CliSession, event: str, handler: str) -> Record:
    rows = {each["type"]: each for each in _rows(session)}
    wanted = f"{event}/{handler}"
    if wanted not in rows:
        near = nearest(wanted, rows).replace("/", " ")
        message = f"no handler {handler[:60]!r} subscribes to {event[:60]!r}"
        raise SubscriptionNotFound(message, help=near or None)
    return rows[wanted]


def _print_remaining(done: RemovedSubscription) -> None:
    if not done.others:
        print_info(f"no other handler subscribes to {done.event}: events wait for one")
    if done.live:
        jobs = pluralize(done.live, "job")
        print_info(
            f"{jobs} already delivered will still run: `holdfast jobs list type:{done.type}`"
        )


def _rows(session: CliSession) -> list[Record]:
    return [
        each.as_json() for each in session.run(session.admin.subscriptions.list(session.caller()))
    ]
