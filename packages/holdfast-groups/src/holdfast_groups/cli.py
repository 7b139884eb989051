"""`holdfast groups`: how far a group is, and its cancellation."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.changes import ChangeOptions, change_options, confirm_change
from holdfast.cli.console import print_info
from holdfast.cli.interrupts import take_interrupts
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import (
    Column,
    Format,
    columns,
    output_option,
    to_seconds,
    write_records,
    write_single,
    write_table,
)
from holdfast.cli.session import CliSession, with_database
from holdfast.core.duration import pluralize

if TYPE_CHECKING:
    from holdfast_groups.admin import GroupAdmin

WIDTH = 30
LOOK_S = 1.0
_LISTED = (
    *columns("id", "type", "state", "ended", "total"),
    Column("created", lambda row: to_seconds(row["created_at"])),
)
_COLUMNS = columns("total", "waiting", "running", "completed", "failed", "cancelled")


def _admin(session: CliSession) -> GroupAdmin:
    # Here, because help does without it and is quicker so.
    from holdfast_groups.admin import GroupAdmin

    return session.admin.of(GroupAdmin)


@click.group(
    "groups",
    cls=HelpGroup,
    examples=(
        "holdfast groups list",
        "holdfast groups show 0193a6f0-7c00-7000-8000-000000000000 --watch",
        "holdfast groups cancel 0193a6f0-7c00-7000-8000-000000000000",
    ),
)
def groups() -> None:
    """List groups of jobs, show how far they are, and cancel them."""


@groups.command("list", examples=("holdfast groups list", "holdfast groups list -o json"))
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="Maximum rows.")
@output_option
@with_database
def list_(session: CliSession, limit: int, output: Format) -> None:
    """List groups, the newest first. A chain that waits for others, however they end, is a group."""
    from holdfast_groups.admin import summary_json

    found = session.run(_admin(session).list(session.caller(), limit))
    rows = [summary_json(each) for each in found]
    empty = "" if rows else "no groups"
    write_records(rows, _LISTED, output, id="id", empty=empty)


@groups.command(
    "show",
    examples=(
        "holdfast groups show 0193a6f0-7c00-7000-8000-000000000000 --watch",
        "holdfast groups show 0193a6f0-7c00-7000-8000-000000000000 -o json",
    ),
)
@click.argument("id", metavar="ID")
@click.option("--watch", "-w", is_flag=True, help="Follow it until it has ended.")
@output_option
@with_database
def show(session: CliSession, id: str, watch: bool, output: Format) -> None:
    """Show how far a group is; ID is the chain that `groups.start` returned."""
    group = session.find_id("chain", id)
    row = _read(session, group)
    if watch:
        take_interrupts()
        while row["ended"] < row["total"]:
            _draw(row)
            time.sleep(LOOK_S)
            row = _read(session, group)
        _draw(row, is_last=True)
    write_single(row, output, lambda: _write(row, is_drawn=watch))


@groups.command(
    "cancel", examples=("holdfast groups cancel 0193a6f0-7c00-7000-8000-000000000000 --yes",)
)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@change_options
@with_database
def cancel(session: CliSession, ids: tuple[str, ...], change: ChangeOptions) -> None:
    """Cancel what has not ended of groups, and what follows them."""
    found = [session.find_id("chain", each) for each in ids]
    rows = [_read(session, each) for each in found]
    if not change.dry_run and not confirm_change(
        change, "cancel", "group", rows, _COLUMNS, many=True
    ):
        return
    admin, caller = _admin(session), session.caller(change.reason)
    done = [] if change.dry_run else [session.run(admin.cancel(caller, each)) for each in found]
    if change.output != "table":
        counted = [
            {"id": each, "cancelled": count} for each, count in zip(found, done, strict=False)
        ]
        write_records(counted or [{"id": each} for each in found], (), change.output, id="id")
    if change.dry_run:
        print_info(f"would cancel {', '.join(found)}; nothing was changed")
    for each, count in zip(found, done, strict=False):
        ended = f"{pluralize(count, 'chain')} cancelled" if count else "all of it had ended"
        print_info(f"{each}: {ended}")


def _read(session: CliSession, group: str) -> dict[str, Any]:
    from holdfast_groups.admin import progress_json

    return progress_json(group, session.run(_admin(session).get(session.caller(), group)))


def _write(row: dict[str, Any], is_drawn: bool) -> None:
    if not is_drawn:
        click.echo(bar_of(row["ended"], row["total"]))
    write_table([row], _COLUMNS)


def _draw(row: dict[str, Any], is_last: bool = False) -> None:
    """Draw the bar over the one before; where there is no terminal, one line each."""
    is_terminal = sys.stderr.isatty()
    start = "\r" if is_terminal else ""
    end = "\n" if is_last or not is_terminal else ""
    click.echo(f"{start}{bar_of(row['ended'], row['total'])}{end}", err=True, nl=False)


def bar_of(ended: int, total: int) -> str:
    """Return a bar with its figures: `██████░░░░ 60 % · 60 of 100`."""
    filled = WIDTH * ended // total if total else WIDTH
    percent = 100 * ended // total if total else 100
    return f"{'█' * filled}{'░' * (WIDTH - filled)} {percent} % · {ended:,} of {total:,}"
