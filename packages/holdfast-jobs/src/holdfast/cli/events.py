"""`holdfast events`: which handler receives which event, and stored events delivered again."""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING

import click

from holdfast.cli.changes import ChangeOptions, change_options, confirm_change
from holdfast.cli.console import print_info, print_warning
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
from holdfast.core.duration import pluralize

if TYPE_CHECKING:
    from holdfast.commands.start import RemovedSubscription
    from holdfast.core.subscriptions import Subscription

_PROGRESS_S = 5.0

_SUBSCRIPTION_COLUMNS = (
    *columns("event", "handler"),
    Column("since", lambda row: to_seconds(row["created_at"])),
    Column(
        "workers",
        lambda row: row["workers"] or "none",
        lambda row: None if row["workers"] else "red",
    ),
    Column("open jobs", lambda row: row["live"]),
    Column("replayed to", lambda row: to_seconds(row["replayed_to"])),
)


@click.group(
    "events",
    cls=HelpGroup,
    examples=(
        "holdfast events subscriptions",
        "holdfast events unsubscribe order.placed mail_receipt --reason 'handler was removed'",
        "holdfast events replay order.placed --to count_orders --since 30d --rate 100/s",
    ),
)
def events() -> None:
    """List and remove event subscriptions, and replay stored events."""


@events.command(
    "subscriptions",
    examples=("holdfast events subscriptions", "holdfast events subscriptions -o json"),
)
@output_option
@with_database
def subscriptions(session: CliSession, output: Format) -> None:
    """List which handler receives which event, since when, and how many live workers handle it."""
    found = session.run(session.admin.subscriptions.list(session.caller()))
    rows = [each.as_json() for each in found]
    write_records(rows, _SUBSCRIPTION_COLUMNS, output, id="type", empty="no subscriptions")


@events.command(
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
    if not confirm_change(
        change, "remove", "subscription", [row], _SUBSCRIPTION_COLUMNS, many=True, id="type"
    ):
        return
    done = session.run(
        session.admin.subscriptions.remove(session.caller(change.reason), event, handler)
    )
    write_records([row], _SUBSCRIPTION_COLUMNS, change.output, id="type")
    print_info(f"{event} is no longer delivered to {handler}")
    _print_remaining(done)


@events.command(
    "replay",
    examples=(
        "holdfast events replay order.placed --to count_orders --since 30d --dry-run",
        "holdfast events replay order.placed --to count_orders --since 2026-01-01 --rate 100/s --yes",
    ),
)
@click.argument("event")
@click.option("--to", "handler", required=True, metavar="HANDLER", help="A handler of the event.")
@click.option(
    "--since", required=True, metavar="WHEN", help="A date, a time, or how long ago, such as 30d."
)
@click.option("--rate", metavar="N/s", help="Events per second; without it, as fast as possible.")
@change_options
@with_database
def replay(
    session: CliSession,
    event: str,
    handler: str,
    since: str,
    rate: str | None,
    change: ChangeOptions,
) -> None:
    """Deliver stored events to a handler that subscribed after they were published.

    Each event is delivered once, however often you run this; to continue after an interruption, run it again. Replayed
    events have the lowest priority, so that new ones go first.
    """
    from holdfast.admin.jobs import per_second
    from holdfast.commands.replay import REPLAY_LOOK, read_since
    from holdfast.core.subscriptions import Subscription

    pace = None if rate is None else per_second(rate)
    if change.dry_run:
        pace = None  # nothing is added
    row = _get_subscription(session, event, handler)
    begins = session.read(read_since(session.store, since))
    if not change.dry_run and not confirm_change(
        change, "replay to", "subscription", [row], _SUBSCRIPTION_COLUMNS, many=True, id="type"
    ):
        return
    look = REPLAY_LOOK if pace is None else max(1, min(REPLAY_LOOK, int(pace)))
    copied = _replay(session, Subscription(event, handler), begins, look, pace, change)
    if change.output != "table":
        write_records([{"type": row["type"], "replayed": copied}], (), change.output, id="type")
    done = "would replay" if change.dry_run else "replayed"
    print_info(f"{done} {pluralize(copied, 'event')} to {handler}")


def _replay(
    session: CliSession,
    target: Subscription,
    since: int,
    look: int,
    pace: float | None,
    change: ChangeOptions,
) -> int:
    """Replay batch after batch, and print how far it is; return how many events were new to the handler."""
    from holdfast.core.instants import to_datetime

    after: str | None = None
    copied = 0
    said_at = monotonic()
    while True:
        page = session.run(
            session.admin.subscriptions.replay(
                session.caller(change.reason), target, since, after, look, change.dry_run
            )
        )
        if page.is_last:
            return copied
        after, copied = page.last, copied + page.copied
        if monotonic() - said_at >= _PROGRESS_S:
            said_at = monotonic()
            reached, done = to_datetime(page.reached), "found" if change.dry_run else "replayed"
            print_info(f"{pluralize(copied, 'event')} {done}, up to {reached:%Y-%m-%d %H:%M}")
        if pace is not None and page.copied:
            sleep(page.copied / pace)


def _get_subscription(session: CliSession, event: str, handler: str) -> Record:
    from holdfast.commands.start import no_such_subscription
    from holdfast.core.subscriptions import Subscription

    wanted = Subscription(event, handler)
    found = session.run(session.admin.subscriptions.list(session.caller()))
    for each in found:
        if each.record.job_type == wanted.job_type:
            return each.as_json()
    raise no_such_subscription(wanted, [each.record for each in found])


def _print_remaining(done: RemovedSubscription) -> None:
    if not done.others:
        print_info(f"no other handler subscribes to {done.event}: events wait for one")
    if done.live:
        jobs = pluralize(done.live, "job")
        print_info(
            f"{jobs} already delivered will still run: `holdfast jobs list type:{done.type}`"
        )
