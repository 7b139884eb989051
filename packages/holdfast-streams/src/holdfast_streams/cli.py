"""`holdfast streams` and `holdfast inbox`: readers of the event log, messages of other systems, and what was parked.

What changes something by name sees first that all of the names are there, so that a typo changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.changes import ChangeOptions, change_named, change_options, confirm_change
from holdfast.cli.console import print_info, print_warning
from holdfast.cli.exit_codes import Exit
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
from holdfast.core.ids import parse_id

if TYPE_CHECKING:
    from holdfast_streams.admin import StreamAdmin
    from holdfast_streams.commands import StreamFacts
    from holdfast_streams.inbox.inbox_admin import InboxAdmin
    from holdfast_streams.parked_admin import ParkedAdmin

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
_INBOX_COLOURS = {"open": "green", "running": "green", "idle": "yellow", "away": "red"}
_INBOX_COLUMNS = (
    *columns("name", "kind"),
    Column("state", lambda row: row["state"], lambda row: _INBOX_COLOURS.get(row["state"])),
    *columns("source", "members", "parked"),
    Column("error", lambda row: first_line(row["error"])),
)
_PARKED_SINCE = (
    *columns("state", "attempts"),
    Column("parked", lambda row: to_seconds(row["parked_at"])),
    Column("error", lambda row: first_line(row["error"])),
)
_EVENT_COLUMNS = (*columns("id", "event", "key", "line"), *_PARKED_SINCE)
_MESSAGE_COLUMNS = (*columns("id", "message_id"), *_PARKED_SINCE)

MAX_PARKED = 1_000
"""How many parked ones a confirmation and a dry run look at."""


def _admin(session: CliSession) -> StreamAdmin:
    # Here, because help does without it and is quicker so.
    from holdfast_streams.admin import StreamAdmin

    return session.admin.of(StreamAdmin)


def _inbox_admin(session: CliSession) -> InboxAdmin:
    from holdfast_streams.inbox.inbox_admin import InboxAdmin

    return session.admin.of(InboxAdmin)


# ---- What both have


def _add_change(
    group: HelpGroup,
    admin_of: Callable[[CliSession], ParkedAdmin],
    name: str,
    done: str,
    text: str,
    example: str,
    loses: str | None = None,
) -> None:
    """Add a command that changes readers or inboxes by name; what it `loses`, it asks for first."""

    @group.command(name, help=text, examples=(example,))
    @click.argument("names", nargs=-1, required=True, metavar="NAME...")
    @change_options
    @with_database
    def change_by_name(session: CliSession, names: tuple[str, ...], change: ChangeOptions) -> None:
        admin, caller = admin_of(session), session.caller(change.reason)
        for each in names:
            session.run(admin.find(caller, each))
        run = partial(getattr(admin, name), caller)
        listed = ", ".join(names)
        if loses and not change.dry_run:
            rows = [{"name": each} for each in names]
            confirm_change(change, name, loses, rows, columns("name"), many=True)
        change_named(
            session, change, names, run, would=f"{name} {listed}", done=f"{listed}: {done}"
        )


def _add_parked(
    group: HelpGroup,
    admin_of: Callable[[CliSession], ParkedAdmin],
    noun: str,
    states: Sequence[str],
    columns: Sequence[Column],
    example: str,
    texts: dict[str, str],
) -> None:
    """Add the commands about what was parked: list it, try it again, give it up."""
    line = f"holdfast {group.name} parked {example}"

    @group.command("parked", help=texts["parked"], examples=(line, f"{line} -o id"))
    @click.argument("name", metavar="NAME")
    @click.option("--state", type=click.Choice(states), help="Only this state.")
    @limit_option(50)
    @output_option
    @with_database
    def list_parked(session: CliSession, name: str, state: Any, limit: int, output: Format) -> None:
        admin = admin_of(session)
        found = session.run(admin.list_parked(session.caller(), name, state, limit))
        rows = [admin.parked_json(each) for each in found]
        write_records(rows, columns, output, empty=f"no parked {noun}s")

    def change_parked(
        verb: str, done: str, session: CliSession, name: str, ids: Sequence[str], change: Any
    ) -> int:
        admin, caller = admin_of(session), session.caller(change.reason)
        if change.dry_run or (verb == "skip" and not ids):
            state = None if verb == "retry" and "held" in states else "failed"
            found = session.run(admin.list_parked(caller, name, state, MAX_PARKED))
            meant = [admin.parked_json(each) for each in found if not ids or each.id in ids]
            if not confirm_change(change, verb, noun, meant, columns, many=not ids):
                return Exit.OK
        changed = session.run(getattr(admin, verb)(caller, name, ids))
        if change.output != "table":
            write_records([{"id": each} for each in changed], (), change.output)
        print_info(f"{pluralize(len(changed), noun)} {done}")
        missing = [each for each in ids if str(parse_id(each)) not in changed]
        for each in missing:
            print_warning(f"{noun} {each} was not changed: {name} has not parked it as failed")
        return Exit.PARTLY if missing else Exit.OK

    for verb, done in (("retry", "will be tried again"), ("skip", "skipped")):

        @group.command(
            verb, help=texts[verb], examples=(f"holdfast {group.name} {verb} {example}",)
        )
        @click.argument("name", metavar="NAME")
        @click.argument("ids", nargs=-1, metavar="[ID]...")
        @change_options
        @with_database
        def change_some(
            session: CliSession,
            name: str,
            ids: tuple[str, ...],
            change: ChangeOptions,
            verb: str = verb,
            done: str = done,
        ) -> int:
            return change_parked(verb, done, session, name, ids, change)


# ---- Readers of the event log


@click.group(
    "streams", cls=HelpGroup, examples=("holdfast streams list", "holdfast streams lag revenue")
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
    _print_waits(found)


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
    _print_waits(facts)


def _print_waits(facts: Sequence[StreamFacts]) -> None:
    """Say which transaction or broker lines wait for; a transaction keeps all readers of its line."""
    for sentence in dict.fromkeys(str(wait) for each in facts for wait in each.waits):
        print_info(sentence)
    for each in facts:
        for block in each.blocks:
            print_info(f"{each.reader.name}: {block}")


_add_change(
    streams,
    _admin,
    "pause",
    "paused",
    "Pause readers; blocks under way are rolled back.",
    "holdfast streams pause revenue --reason 'the table is being rebuilt'",
)
_add_change(
    streams,
    _admin,
    "resume",
    "resumed",
    "Resume readers where they were.",
    "holdfast streams resume revenue",
)
_add_change(
    streams,
    _admin,
    "rebase",
    "continue in a new epoch",
    "Have relays go on whose streams have events that this database does not, as after a restore.",
    "holdfast streams rebase ORDERS --reason 'restored to 02:00'",
)
_add_change(
    streams,
    _admin,
    "recreate",
    "create their streams again",
    "Have relays create streams that are gone, and send again what the log still has.",
    "holdfast streams recreate ORDERS --reason 'the broker lost its disks'",
)
_add_change(
    streams,
    _admin,
    "remove",
    "removed",
    "Forget readers that no process runs, with their positions and parked events.",
    "holdfast streams remove old_feed --reason 'replaced'",
    loses="reader",
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
    required=True,
    metavar="WHEN",
    help="earliest, latest, a time, or how long ago; latest is the end of the log.",
)
@click.option("--line", type=click.IntRange(min=0), help="Only this line.")
@change_options
@with_database
def rewind(
    session: CliSession, name: str, since: str, line: int | None, change: ChangeOptions
) -> None:
    """Set a reader back to events it has read, or forward past those it has not."""
    from holdfast_streams.admin import stream_json
    from holdfast_streams.registration import parse_start

    instant, ago_ms = parse_start(since)
    admin, caller = _admin(session), session.caller(change.reason)
    session.run(admin.find_line(caller, name, line))
    lines = stream_json(session.run(admin.get(caller, name)))["lines"]
    meant = [each for each in lines if line in (None, each["line"])]
    if not confirm_change(
        change, f"set {name} to {since} in", "line", meant, _LINE_COLUMNS, many=True, id="line"
    ):
        return
    moved = session.run(admin.rewind(caller, name, instant, ago_ms, line))
    rows = [{"line": number, "position": position} for number, position in moved]
    if change.output != "table":
        write_records(rows, (), change.output, id="line")
    print_info(f"{name} was set to {since} in {pluralize(len(moved), 'line')}")


_add_parked(
    streams,
    _admin,
    "event",
    ("failed", "held", "due"),
    _EVENT_COLUMNS,
    "revenue",
    {
        "parked": "List the events that a reader could not take, and those held behind them.",
        "retry": "Have parked events taken again, in order: those with the IDs, or all.",
        "skip": "Give up parked events that failed, and release those held behind them.",
    },
)


# ---- Inboxes


@click.group(
    "inbox", cls=HelpGroup, examples=("holdfast inbox list", "holdfast inbox parked stripe")
)
def inbox() -> None:
    """Show inboxes of webhooks and brokers; retry or skip what they parked."""


@inbox.command("list", examples=("holdfast inbox list", "holdfast inbox list -o json"))
@output_option
@with_database
def list_inboxes(session: CliSession, output: Format) -> None:
    """List inboxes: where their messages come from, whether their broker is reached, and what they parked."""
    from holdfast_streams.inbox.inbox_admin import inbox_json

    rows = [inbox_json(each) for each in session.run(_inbox_admin(session).list(session.caller()))]
    empty = "no inboxes found; `holdfast migrate` and workers register those of their application"
    write_records(rows, _INBOX_COLUMNS, output, id="name", empty=empty)


_add_parked(
    inbox,
    _inbox_admin,
    "message",
    ("failed", "due"),
    _MESSAGE_COLUMNS,
    "stripe",
    {
        "parked": "List the messages that an inbox could not take, with their errors.",
        "retry": "Have workers take parked messages again: those with the IDs, or all.",
        "skip": "Give up parked messages: those with the IDs, or all.",
    },
)
_add_change(
    inbox,
    _inbox_admin,
    "remove",
    "removed",
    "Forget inboxes that no process reads, with what they parked.",
    "holdfast inbox remove old_shop --reason 'replaced'",
    loses="inbox",
)
