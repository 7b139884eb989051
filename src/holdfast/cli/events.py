"""`holdfast events`: listing event subscriptions, and removing those whose handler is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.confirmation import Act, change_options, may_go_on
from holdfast.cli.console import count_of, say, warn
from holdfast.cli.lazy import Group
from holdfast.cli.output import Column, Format, Record, output_option, to_the_second, write_records
from holdfast.cli.session import Session, with_database
from holdfast.core.errors import SubscriptionNotFound
from holdfast.core.suggestions import nearest

if TYPE_CHECKING:
    from holdfast.admin.subscriptions import SubscriptionAdmin
    from holdfast.commands.subscriptions import RemovedSubscription


def _colour(row: Record) -> str | None:
    return None if row["workers"] else "red"


_COLUMNS = (
    Column("event", lambda row: row["event"]),
    Column("handler", lambda row: row["handler"]),
    Column("since", lambda row: to_the_second(row["created_at"])),
    Column("workers", lambda row: row["workers"] or "none", _colour),
    Column("live", lambda row: row["live"]),
)


@click.group(
    "events",
    cls=Group,
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
def subscriptions(session: Session, output: Format) -> None:
    """List which handler receives which event, since when, and how many live workers handle it."""
    rows = _rows(session)
    write_records(rows, _COLUMNS, output, id="type")
    if not rows:
        say("no subscriptions")


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
def unsubscribe(session: Session, event: str, handler: str, act: Act) -> None:
    """Stop delivering an event to a handler that was removed from the code.

    Jobs already delivered remain. A worker that still has the handler subscribes it again when it
    starts.
    """
    row = _found(session, event, handler)
    if not act.dry_run and row["workers"]:
        warn(f"a live worker has {handler} and will subscribe it again at its next start")
    if not may_go_on(act, "remove", "subscription", [row], _COLUMNS, many=True, id="type"):
        return
    done = session.run(_desk(session).remove(session.caller(act.reason), event, handler))
    write_records([row], _COLUMNS, act.output, id="type")
    say(f"{event} is no longer delivered to {handler}")
    _tell_rest(done)


def _found(session: Session, event: str, handler: str) -> Record:
    rows = {each["type"]: each for each in _rows(session)}
    wanted = f"{event}/{handler}"
    if wanted not in rows:
        near = nearest(wanted, rows).replace("/", " ")
        message = f"no handler {handler[:60]!r} subscribes to {event[:60]!r}"
        raise SubscriptionNotFound(message, help=near or None)
    return rows[wanted]


def _tell_rest(done: RemovedSubscription) -> None:
    if not done.others:
        say(f"no other handler subscribes to {done.event}: events wait for one")
    if done.live:
        jobs = count_of(done.live, "job")
        say(f"{jobs} already delivered will still run: `holdfast jobs list type:{done.type}`")


def _rows(session: Session) -> list[Record]:
    return [each.as_json() for each in session.run(_desk(session).list(session.caller()))]


def _desk(session: Session) -> SubscriptionAdmin:
    from holdfast.admin.subscriptions import SubscriptionAdmin

    return SubscriptionAdmin(session.gateway)
