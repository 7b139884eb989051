"""`holdfast limits`: what the limits of the fleet hold back, and setting them while workers run."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from holdfast.cli.changes import ChangeOptions, change_named, change_options
from holdfast.cli.completion import complete_type
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import (
    Column,
    Format,
    columns,
    flag_column,
    limit_option,
    output_option,
    write_records,
)
from holdfast.cli.session import CliSession, with_database
from holdfast.core.errors import CommandUsage

_LIMIT_COLUMNS = (
    *columns("type", "key"),
    Column("running", lambda row: row["running"], lambda row: "yellow" if row["full"] else None),
    *columns("started", "waiting", "oldest"),
    flag_column("paused", "yellow"),
    Column("own limit", lambda row: row["own"]),
)


@click.group(
    "limits",
    cls=HelpGroup,
    examples=(
        "holdfast limits list",
        "holdfast limits list mail.send --full",
        "holdfast limits set mail.send --key 42 --limit 10",
        "holdfast limits rest mail.send --key 42 10m --reason 'their server asked for it'",
    ),
)
def limits() -> None:
    """List and change fleet-wide limits, by job type and key."""


@limits.command(
    "list",
    examples=(
        "holdfast limits list",
        "holdfast limits list mail.send",
        "holdfast limits list --full -o json",
    ),
)
@click.argument("type", required=False, shell_complete=complete_type)
@click.option("--full", is_flag=True, help="Only limits that are holding jobs back.")
@limit_option(100, 10_000)
@output_option
@with_database
def list_(session: CliSession, type: str | None, full: bool, limit: int, output: Format) -> None:
    """List limits with their running and waiting jobs; the fullest keys of a type come first.

    Limits are declared in code; those of the live workers are listed.
    """
    from holdfast.admin.limits import limit_record, shown_limit

    found = session.run(session.admin.limits.list(session.caller(), type, full=full, limit=limit))
    shown = limit_record if output == "table" else shown_limit
    empty = "" if found else _why_empty(session, full)
    write_records([shown(each) for each in found], _LIMIT_COLUMNS, output, id="key", empty=empty)


def _why_empty(session: CliSession, full: bool) -> str:
    if full:
        return "no limit is holding jobs back"
    types = session.run(session.admin.types.list(session.caller()))
    is_limited = any(each.limits is not None for each in types)
    return "no key is in use" if is_limited else "no live worker declares limits"


def _target_options(command: Any) -> Any:
    for option in (
        click.option("--key", help="One key, as it appears in the input."),
        click.option("--each", "scope", flag_value="each", help="Each key of the type."),
        click.option("--total", "scope", flag_value="total", help="All jobs of the type together."),
    ):
        command = option(command)
    return command


@limits.command(
    "set",
    examples=(
        "holdfast limits set mail.send --key 42 --limit 10",
        "holdfast limits set mail.send --each --rate 100/1m",
        "holdfast limits set mail.send --total --limit 50",
        "holdfast limits set @openai --rate 60/1m",
        "holdfast limits set mail.send --key 42 --limit default --rate default",
    ),
)
@click.argument("type", metavar="TYPE|@NAME", shell_complete=complete_type)
@_target_options
@click.option("--limit", metavar="N", help="Jobs that can run at once.")
@click.option(
    "--rate", metavar="N/PERIOD", help="Jobs that can start in any period of that length."
)
@change_options
@with_database
def set_(
    session: CliSession,
    type: str,
    key: str | None,
    scope: Any,
    limit: str | None,
    rate: str | None,
    change: ChangeOptions,
) -> None:
    """Override a limit while workers run; `default` returns to the number in the code.

    It applies from the next claim. Running jobs are not interrupted.
    """
    from holdfast.admin.limits import read_change
    from holdfast.commands.limits import LimitTarget, find_limit

    if limit is None and rate is None:
        raise CommandUsage("nothing to set", help="set --limit N or --rate N/PERIOD")
    wanted = read_change(limit, rate)
    target = LimitTarget(type, key, scope)
    if change.dry_run:
        session.read(find_limit(session.store, target))
    run = partial(session.admin.limits.set, session.caller(change.reason), target, wanted)
    words = f"set {type if key is None else f'{type} {key}'}"
    change_named(session, change, [type], lambda _: run(), would=words, done=words, field="type")


@limits.command(
    "rest",
    examples=(
        "holdfast limits rest mail.send --key 42 10m --reason 'their server asked for it'",
        "holdfast limits rest @openai 30s",
        "holdfast limits rest mail.send --key 42 0s",
    ),
)
@click.argument("type", metavar="TYPE|@NAME", shell_complete=complete_type)
@click.argument("duration", metavar="DURATION")
@click.option("--key", help="The key, as it appears in the input.")
@change_options
@with_database
def rest(
    session: CliSession, type: str, duration: str, key: str | None, change: ChangeOptions
) -> None:
    """Pause one key for a while, on all workers; 0s ends the pause.

    Running jobs are not interrupted. To stop all of a type, use `holdfast types pause`.
    """
    from holdfast.commands.limits import LimitTarget, find_rest
    from holdfast.core.duration import milliseconds

    ms = milliseconds(duration)
    named = type if key is None else f"{type} {key}"
    would = f"pause {named} for {duration}"
    done = f"paused {named} for {duration}" if ms else f"resumed {named}"
    target = LimitTarget(type, key)
    if change.dry_run:
        session.read(find_rest(session.store, target, ms))
    run = partial(session.admin.limits.rest, session.caller(change.reason), target, ms)
    change_named(session, change, [type], lambda _: run(), would=would, done=done, field="type")
