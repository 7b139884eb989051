"""`holdfast types`: listing and pausing job types, and overriding their settings at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.confirmation import ChangeOptions, change_options
from holdfast.cli.console import print_info
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import Column, Format, Record, columns, output_option, write_records
from holdfast.cli.session import CliSession, with_database
from holdfast.core.errors import CommandUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.admin.types import TypeAdmin

_UNSET = -1
_DEFAULT = "default"

_COLUMNS = (
    *columns("type", "live"),
    Column("oldest due", lambda row: row["oldest_due"]),
    Column("completed", lambda row: row["completed"]),
    Column("failed", lambda row: row["failed"], lambda row: "red" if row["failed"] else None),
    Column("workers", lambda row: row["workers"], lambda row: _workers_colour(row)),
    Column("paused", lambda row: row["paused"], lambda row: "yellow" if row["paused"] else None),
    Column("settings", lambda row: row["settings"]),
)


def _workers_colour(row: Record) -> str | None:
    return "red" if row["live"] and not row["workers"] else None


@click.group(
    "types",
    cls=HelpGroup,
    examples=(
        "holdfast types list",
        "holdfast types pause mail.send --reason 'provider is down'",
        "holdfast types set pdf.render --lease 120s --concurrency 2",
    ),
)
def command() -> None:
    """List, pause, resume and configure job types."""


@command.command("list", examples=("holdfast types list", "holdfast types list -o json"))
@output_option
@with_database
def list_(session: CliSession, output: Format) -> None:
    """List all job types in the database, with depth, age, handlers and settings."""
    facts = session.run(_admin(session).list(session.caller()))
    rows = [each.as_record() if output == "table" else each.as_json() for each in facts]
    write_records(rows, _COLUMNS, output, id="type")
    if not rows:
        print_info("no job types found")


_types_argument = click.argument("types", nargs=-1, metavar="TYPE...")
_all_option = click.option("--all", "everything", is_flag=True, help="All types.")


@command.command(
    "pause",
    examples=(
        "holdfast types pause mail.send --reason 'provider is down'",
        "holdfast types pause --all --reason 'maintenance until noon'",
    ),
)
@_types_argument
@_all_option
@change_options
@with_database
def pause(
    session: CliSession, types: tuple[str, ...], everything: bool, change: ChangeOptions
) -> None:
    """Pause job types: workers finish running jobs and claim no more of these types."""
    _set_paused(session, types, everything, change, paused=True)


@command.command(
    "resume", examples=("holdfast types resume mail.send", "holdfast types resume --all")
)
@_types_argument
@_all_option
@change_options
@with_database
def resume(
    session: CliSession, types: tuple[str, ...], everything: bool, change: ChangeOptions
) -> None:
    """Resume paused job types."""
    _set_paused(session, types, everything, change, paused=False)


def _set_paused(
    session: CliSession,
    types: tuple[str, ...],
    everything: bool,
    change: ChangeOptions,
    *,
    paused: bool,
) -> None:
    if everything == bool(types):
        raise CommandUsage("name job types, or use --all")
    word = "pause" if paused else "resume"
    _require_known(session, types)
    if change.dry_run:
        print_info(
            f"would {word} {'everything' if everything else ', '.join(types)}; nothing was changed"
        )
        return
    admin, caller = _admin(session), session.caller(change.reason)
    if everything:
        session.run(admin.pause_all(caller, paused))
    for type in types:
        session.run(admin.pause(caller, type) if paused else admin.resume(caller, type))
    print_info(f"{word}d {'everything' if everything else ', '.join(types)}")


def _require_known(session: CliSession, types: Sequence[str]) -> None:
    from holdfast.commands.types import unknown_type

    facts = session.run(_admin(session).list(session.caller()))
    known = [each.totals.type for each in facts]
    for type in types:
        if type not in known:
            raise unknown_type(type, known)


def _admin(session: CliSession) -> TypeAdmin:
    from holdfast.admin.types import TypeAdmin

    return TypeAdmin(session.gateway)


def _or_default(read_value: Callable[[str], int]) -> Callable[..., int | None]:
    """Read an option's value; `default` removes an override."""

    def read_option(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
        if text is None:
            return None
        return _UNSET if text == _DEFAULT else read_value(text)

    return read_option


def _milliseconds(text: str) -> int:
    from holdfast.core.duration import milliseconds

    return max(1, milliseconds(text))


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise click.BadParameter(f"{text[:20]!r} is neither a positive number nor {_DEFAULT!r}")
    return int(text)


@command.command(
    "set",
    examples=(
        "holdfast types set pdf.render --lease 120s --concurrency 2",
        "holdfast types set pdf.render --lease default",
    ),
)
@click.argument("type")
@click.option(
    "--lease",
    "lease_ms",
    callback=_or_default(_milliseconds),
    metavar="DURATION",
    help="Lease duration.",
)
@click.option(
    "--timeout",
    "timeout_ms",
    callback=_or_default(_milliseconds),
    metavar="DURATION",
    help="Maximum duration of an attempt.",
)
@click.option(
    "--concurrency",
    callback=_or_default(_number),
    metavar="N",
    help="Maximum concurrent handlers per worker.",
)
@click.option(
    "--max-attempts",
    callback=_or_default(_number),
    metavar="N",
    help="Maximum attempts, including the first.",
)
@change_options
@with_database
def set_(session: CliSession, type: str, change: ChangeOptions, **values: int | None) -> None:
    """Override settings of a job type while workers run; `default` removes an override.

    Workers pick them up at the next heartbeat; existing leases keep their length.
    """
    from holdfast.commands.types import TypeChange

    if all(each is None for each in values.values()):
        raise CommandUsage("nothing to set", help="give --lease, --timeout, --concurrency …")
    _require_known(session, [type])
    if change.dry_run:
        print_info(f"would set {type}; nothing was changed")
        return
    session.run(_admin(session).set(session.caller(change.reason), type, TypeChange(**values)))
    print_info(f"set {type}")
