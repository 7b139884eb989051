"""`holdfast streams`: readers of the event log, their lag, and what to do with them."""

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
from holdfast.core.duration import format_span, pluralize

if TYPE_CHECKING:
    from holdfast_streams.admin import StreamAdmin

_COLOURS = {"running": "green", "paused": "yellow", "blocked": "red", "idle": "red"}
_COLUMNS = (
    *columns("name"),
    Column("state", lambda row: row["state"], lambda row: _COLOURS.get(row["state"])),
    Column("events", lambda row: " ".join(row["patterns"])),
    Column("to", lambda row: row["target"]),
    *columns("members", "lag"),
    Column("behind", lambda row: format_span(row["lag_ms"] * 1000) if row["lag"] else None),
    *columns("parked"),
)
_LINE_COLUMNS = (
    *columns("reader", "line", "position", "head", "lag"),
    Column("behind", lambda row: format_span(row["lag_ms"] * 1000) if row["next_at"] else None),
    *columns("worker", "parked"),
    Column("error", lambda row: first_line(row["error"])),
)
_PARKED_COLUMNS = (
    *columns("id", "event", "key", "line", "state", "attempts"),
    Column("parked", lambda row: to_seconds(row["parked_at"])),
    Column("error", lambda row: first_line(row["error"])),
)


def _admin(session: CliSession) -> StreamAdmin:
    # Here, because help does without it and is quicker so.
    from holdfast_streams.admin import StreamAdmin

    return session.admin.of(StreamAdmin)


@click.group(
    "streams",
    cls=HelpGroup,
    examples=("holdfast streams list", "holdfast streams lag revenue"),
)
def streams() -> None:
    """Show consumers and relays of the event log, and their lag; pause, rewind, retry, skip and more."""


@streams.command("list", examples=("holdfast streams list", "holdfast streams list -o json"))
@output_option
@with_database
def list_(session: CliSession, output: Format) -> None:
    """List the readers of the event log: what they read, how far behind they are, and what they parked."""
    from holdfast_streams.admin import stream_json

    found = session.run(_admin(session).list(session.caller()))
    rows = [stream_json(each) for each in found]
    empty = "no readers found; workers register the consumers and relays of their application"
    write_records(rows, _COLUMNS, output, id="name", empty=empty)
    for each in found:
        for block in each.blocks:
            print_info(f"{each.reader.name}: {block}")


@streams.command("lag", examples=("holdfast streams lag", "holdfast streams lag revenue -o json"))
@click.argument("name", required=False, metavar="[NAME]")
@output_option
@with_database
def lag(session: CliSession, name: str | None, output: Format) -> None:
    """Show how far readers are behind, line by line, and which transaction or broker a line waits for."""
    from holdfast_streams.admin import stream_json

    admin, caller = _admin(session), session.caller()
    facts = [session.run(admin.get(caller, name))] if name else session.run(admin.list(caller))
    rows = [line for each in facts for line in stream_json(each)["lines"]]
    write_records(rows, _LINE_COLUMNS, output, id="line", empty="no readers found")
    for sentence in dict.fromkeys(str(wait) for each in facts for wait in each.waits):
        print_info(sentence)
    for each in facts:
        for block in each.blocks:
            print_info(f"{each.reader.name}: {block}")


@streams.command(
    "parked", examples=("holdfast streams parked revenue", "holdfast streams parked revenue -o id")
)
@click.argument("name", metavar="NAME")
@click.option("--state", type=click.Choice(("failed", "held", "due")), help="Only this state.")
@limit_option(50)
@output_option
@with_database
def list_parked(session: CliSession, name: str, state: Any, limit: int, output: Format) -> None:
    """List the events that a reader could not take, and those held behind them."""
    from holdfast_streams.admin import parked_json

    found = session.run(_admin(session).parked_events(session.caller(), name, state, limit))
    write_records(
        [parked_json(each) for each in found], _PARKED_COLUMNS, output, empty="no parked events"
    )


def _add_change(name: str, done: str, text: str, example: str) -> None:
    """Add a command that changes readers by name."""

    @streams.command(name, help=text, examples=(example,))
    @click.argument("names", nargs=-1, required=True, metavar="NAME...")
    @change_options
    @with_database
    def change_readers(session: CliSession, names: tuple[str, ...], change: ChangeOptions) -> None:
        run = partial(getattr(_admin(session), name), session.caller(change.reason))
        listed = ", ".join(names)
        change_named(
            session, change, names, run, would=f"{name} {listed}", done=f"{listed}: {done}"
        )


_add_change(
    "pause",
    "paused",
    "Pause readers; blocks under way are rolled back.",
    "holdfast streams pause revenue --reason 'the table is being rebuilt'",
)
_add_change(
    "resume", "resumed", "Resume readers where they were.", "holdfast streams resume revenue"
)
_add_change(
    "rebase",
    "continue in a new epoch",
    "Have relays go on whose streams have events that this database does not, as after a restore.",
    "holdfast streams rebase ORDERS --reason 'restored to 02:00'",
)
_add_change(
    "recreate",
    "create their streams again",
    "Have relays create streams that are gone, and send again what the log still has.",
    "holdfast streams recreate ORDERS --reason 'the broker lost its disks'",
)
_add_change(
    "remove",
    "removed",
    "Forget readers that no process runs, with their positions and parked events.",
    "holdfast streams remove old_feed --reason 'replaced'",
)


@streams.command(
    "rewind",
    examples=(
        "holdfast streams rewind revenue --since 2h",
        "holdfast streams rewind revenue --since earliest --reason 'rebuilt the table'",
    ),
)
@click.argument("name", metavar="NAME")
@click.option(
    "--since",
    metavar="WHEN",
    help="earliest, a time, or how long ago; without it, the end of the log.",
)
@click.option("--line", type=click.IntRange(min=0), help="Only this line.")
@change_options
@with_database
def rewind(
    session: CliSession, name: str, since: str | None, line: int | None, change: ChangeOptions
) -> None:
    """Set a reader back to events it has read, or forward past those it has not."""
    from holdfast_streams.registration import parse_start

    instant, ago_ms = parse_start(since)
    where = "the end" if since is None else since
    if change.dry_run:
        session.run(_admin(session).get(session.caller(), name))
        print_info(f"would set {name} to {where}; nothing was changed")
        return
    moved = session.run(
        _admin(session).rewind(session.caller(change.reason), name, instant, ago_ms, line)
    )
    rows = [{"line": number, "position": position} for number, position in moved]
    if change.output != "table":
        write_records(rows, (), change.output, id="line")
    print_info(f"{name} was set to {where} in {pluralize(len(moved), 'line')}")


def _add_parked(name: str, done: str, text: str) -> None:
    """Add a command that acts on the parked events of a reader."""

    @streams.command(name, help=text, examples=(f"holdfast streams {name} revenue",))
    @click.argument("reader", metavar="NAME")
    @click.argument("ids", nargs=-1, metavar="[ID]...")
    @change_options
    @with_database
    def change_parked(
        session: CliSession, reader: str, ids: tuple[str, ...], change: ChangeOptions
    ) -> None:
        admin = _admin(session)
        if change.dry_run:
            found = session.run(admin.parked_events(session.caller(), reader, None, 1_000))
            meant = [each for each in found if not ids or each.id in ids]
            print_info(f"would {name} {pluralize(len(meant), 'event')}; nothing was changed")
            return
        act = getattr(admin, name)
        changed = session.run(act(session.caller(change.reason), reader, ids))
        if change.output != "table":
            write_records([{"id": each} for each in changed], (), change.output)
        print_info(f"{pluralize(len(changed), 'event')} {done}")


_add_parked(
    "retry",
    "will be tried again",
    "Have parked events taken again, in order: those with the IDs, or all.",
)
_add_parked(
    "skip",
    "skipped",
    "Give up parked events that failed, and release those held behind them.",
)
