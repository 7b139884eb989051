"""`holdfast schedules`: schedules that are set at run time."""

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
    parse_pairs,
    to_seconds,
    write_json,
    write_records,
    write_single,
    write_table,
)
from holdfast.cli.session import CliSession, with_database

if TYPE_CHECKING:
    from holdfast_schedules.admin import ScheduleAdmin

_COLOURS = {"scheduled": "green", "paused": "yellow", "late": "red", "failing": "red"}
_COLUMNS = (
    *columns("name"),
    Column("state", lambda row: row["state"], lambda row: _COLOURS.get(row["state"])),
    *columns("type", "words"),
    Column("next", lambda row: None if row["paused"] else to_seconds(row["next_at"])),
    Column("last", lambda row: to_seconds(row["last_slot"])),
    *columns(outcome="last_job_state"),
    Column("error", lambda row: first_line(row["error"])),
)
_CONTEXT = Column("context", lambda row: ", ".join(f"{k}={v}" for k, v in row["context"].items()))
_SLOT_COLUMNS = (
    Column("due", lambda row: to_seconds(row["slot"])),
    *columns("state"),
    Column("requested", lambda row: "yes" if row["requested"] else None),
    *columns(job="job_id", outcome="job_state"),
    Column("error", lambda row: first_line(row["error"])),
)


def _columns_of(rows: list[dict[str, Any]]) -> tuple[Column, ...]:
    """Return the columns of schedules; the context is one only where it is used."""
    return (*_COLUMNS, _CONTEXT) if any(each["context"] for each in rows) else _COLUMNS


def _admin(session: CliSession) -> ScheduleAdmin:
    # Here, because help does without it and is quicker so.
    from holdfast_schedules.admin import ScheduleAdmin

    return session.admin.of(ScheduleAdmin)


@click.group(
    "schedules",
    cls=HelpGroup,
    examples=("holdfast schedules list", "holdfast schedules show report:7"),
)
def schedules() -> None:
    """Set, list, pause, resume, run and delete schedules that are set at run time."""


@schedules.command(
    "list",
    examples=(
        "holdfast schedules list",
        "holdfast schedules list report: --paused",
        "holdfast schedules list --late -o ndjson",
    ),
)
@click.argument("prefix", required=False, metavar="[PREFIX]")
@click.option("--type", help="Only this job type.")
@click.option("--paused/--active", default=None, help="Only paused ones, or the others.")
@click.option("--late", is_flag=True, help="Only those that were due a minute ago or earlier.")
@click.option("--after", metavar="NAME", help="Only names after this one.")
@limit_option(50)
@output_option
@with_database
def list_(
    session: CliSession,
    prefix: str | None,
    type: str | None,
    paused: bool | None,
    late: bool,
    after: str | None,
    limit: int,
    output: Format,
) -> None:
    """List schedules by name: all, or those whose names begin with PREFIX."""
    from holdfast_schedules.admin import schedule_json
    from holdfast_schedules.schedule_store import SchedulePage

    page = SchedulePage(limit, after or "", prefix, type, paused, late)
    found = session.run(_admin(session).list(session.caller(), page))
    rows = [schedule_json(each) for each in found]
    write_records(rows, _columns_of(rows), output, id="name", empty="no schedules found")
    if len(rows) == limit:
        print_info(f"there may be more: --after {rows[-1]['name']}")


@schedules.command(
    "show",
    examples=(
        "holdfast schedules show report:7",
        "holdfast schedules show report:7 --limit 3 -o json",
    ),
)
@click.argument("name", metavar="NAME")
@click.option("--raw", is_flag=True, help="Show the input unredacted, including secrets.")
@limit_option(10)
@output_option
@with_database
def show(session: CliSession, name: str, raw: bool, limit: int, output: Format) -> None:
    """Show a schedule: when it is due, why it starts nothing, and its latest due times with their jobs."""
    from holdfast_schedules.admin import schedule_json

    admin, caller = _admin(session), session.caller()
    facts = session.run(admin.get(caller, name))
    slots = session.run(admin.history(caller, name, limit))
    row = {**schedule_json(facts, admin.sealer, False, raw), "slots": slots}
    write_single(row, output, partial(_write_schedule, row), id="name")


def _write_schedule(row: dict[str, Any]) -> None:
    write_table([row], _columns_of([row]))
    click.echo(f"\n{row['why']}.")
    click.echo("Input: ", nl=False)
    write_json(row["input"])
    if row["slots"]:
        click.echo()
        write_table(row["slots"], _SLOT_COLUMNS)


@schedules.command(
    "set",
    examples=(
        """holdfast schedules set report:7 report.send '{"id": 7}' --cron '0 8 * * mon' --timezone America/Lima""",
        """holdfast schedules set poll:eu feed.poll @feed.json --every 5m --overlap skip --app shop:app""",
    ),
)
@click.argument("name", metavar="NAME")
@click.argument("type", metavar="TYPE")
@click.argument("input", required=False, metavar="[INPUT]")
@click.option("--every", metavar="DURATION", help="Interval between due times, such as 5m.")
@click.option("--cron", metavar="FIELDS", help="Due times as five fields of cron.")
@click.option("--timezone", metavar="ZONE", help="Time zone of --cron; UTC by default.")
@click.option("--missed", metavar="POLICY", help="Missed due times: last, none or all(n).")
@click.option(
    "--overlap",
    type=click.Choice(("start", "skip")),
    help="While the last job has not ended: start another one, or skip the due time.",
)
@click.option("--jitter", metavar="DURATION", help="Spread jobs of one due time over this long.")
@click.option("--priority", type=click.IntRange(0, 9), help="0 (most urgent) to 9; 5 by default.")
@click.option("--max-attempts", type=click.IntRange(1), help="Maximum attempts of its jobs.")
@click.option(
    "--context",
    multiple=True,
    metavar="NAME=VALUE",
    callback=parse_pairs,
    help="What its jobs are started in, such as tenant=acme; without it, what it has is kept.",
)
@click.option("--new-type", is_flag=True, help="Allow a type that is not in the database yet.")
@change_options
@with_database
def set_(
    session: CliSession,
    name: str,
    type: str,
    input: str | None,
    new_type: bool,
    change: ChangeOptions,
    **options: Any,
) -> None:
    """Set a schedule: start a job of TYPE with INPUT at each due time. One of this NAME is changed.

    INPUT is JSON; @FILE reads it from a file, - from stdin. Without --app, the type must already
    exist in the database.
    """
    from holdfast.cli.jobs import read_json
    from holdfast_schedules.admin import ScheduleRequest, schedule_json

    value = None if input is None else read_json(input)
    wanted = ScheduleRequest(name, type, value, **options)
    if change.dry_run:
        from holdfast_schedules.schedule_plan import make_schedule, make_times

        times = make_times(wanted.every, wanted.cron, wanted.timezone)
        make_schedule(session.app.targets, name, type, value, times, wanted.options)
        print_info(f"would set {name}: {type} {times.describe()}; nothing was changed")
        return
    facts = session.run(_admin(session).set(session.caller(change.reason), wanted, new_type))
    row = schedule_json(facts)
    write_single(row, change.output, lambda: write_table([row], _COLUMNS), id="name")


def _add_change(name: str, done: str, text: str, example: str) -> None:
    """Add a command that changes schedules by name."""

    @schedules.command(name.replace("_", "-"), help=text, examples=(example,))
    @click.argument("names", nargs=-1, required=True, metavar="NAME...")
    @change_options
    @with_database
    def change_schedules(
        session: CliSession, names: tuple[str, ...], change: ChangeOptions
    ) -> None:
        admin, caller = _admin(session), session.caller(change.reason)
        for each in names:
            # None is changed if there is one that does not exist.
            session.run(admin.get(caller, each))
        run = partial(getattr(admin, name), caller)
        listed = ", ".join(names)
        would = f"{name.removesuffix('_now')} {listed}"
        change_named(session, change, names, run, would=would, done=f"{listed}: {done}")


_add_change(
    "pause",
    "paused",
    "Start no jobs of schedules until they are resumed.",
    "holdfast schedules pause report:7 --reason 'customer is on holiday'",
)
_add_change(
    "resume",
    "resumed",
    "Resume schedules with their next due times; those of the pause are left out.",
    "holdfast schedules resume report:7",
)
_add_change(
    "run_now",
    "started",
    "Start a job of schedules now, paused or not; due times stay.",
    "holdfast schedules run-now report:7",
)
_add_change(
    "delete",
    "deleted",
    "Remove schedules; jobs that they started stay.",
    "holdfast schedules delete report:7 --reason 'contract ended'",
)
