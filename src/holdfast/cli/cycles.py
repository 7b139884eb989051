"""`holdfast cycles`: listing cycles with their next and latest runs, pausing and running them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.confirmation import ChangeOptions, change_options
from holdfast.cli.console import print_info
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import (
    Column,
    Format,
    Record,
    columns,
    first_line,
    output_option,
    page_length_option,
    to_seconds,
    write_records,
)
from holdfast.cli.session import CliSession, with_database
from holdfast.core.errors import CycleNotFound, nearest

if TYPE_CHECKING:
    from holdfast.admin.cycles import CycleFacts

_OUTCOMES = {"completed": "green", "failed": "red", "crashed": "red"}
_COLUMNS = (
    Column("name", lambda row: row["name"]),
    Column("runs", lambda row: row["words"]),
    Column("next", lambda row: "paused" if row["paused"] else _first_time(row["next"])),
    Column("last", lambda row: to_seconds((_last_run(row) or {}).get("started_at"))),
    Column(
        "outcome",
        lambda row: (_last_run(row) or {}).get("outcome"),
        lambda row: _OUTCOMES.get(str((_last_run(row) or {}).get("outcome"))),
    ),
    Column("error", lambda row: first_line((_last_run(row) or {}).get("error"))),
)
_RUN_COLUMNS = (
    Column("started", lambda row: to_seconds(row["started_at"])),
    *columns("name", "slot"),
    Column("outcome", lambda row: row["outcome"], lambda row: _OUTCOMES.get(row["outcome"])),
    Column("ms", lambda row: row["duration_ms"]),
    Column("counters", lambda row: _counters(row["counters"])),
    Column("worker", lambda row: row["worker"]),
    Column("error", lambda row: first_line(row["error"])),
)
_NEXT_COLUMNS = (Column("name", lambda row: row["name"]), Column("at", lambda row: row["at"]))


def _counters(counters: Record) -> str:
    """The numbers of a run that say something; a tick has them in its totals."""
    named = {"totalProcessed": "processed", "totalErrors": "errors"}
    return " ".join(
        f"{named.get(name, name)}={number:g}"
        for name, number in counters.items()
        if isinstance(number, int | float) and number and name != "durationMs"
    )


def _first_time(instants: list[str]) -> str | None:
    return to_seconds(instants[0]) if instants else None


def _last_run(row: Record) -> Record | None:
    return row["runs"][0] if row["runs"] else None


@click.group(
    "cycles",
    cls=HelpGroup,
    examples=("holdfast cycles list", "holdfast cycles run-now cleanup"),
)
def command() -> None:
    """List, run, pause and resume cycles."""


@command.command("list", examples=("holdfast cycles list", "holdfast cycles list -o json"))
@output_option
@with_database
def list_(session: CliSession, output: Format) -> None:
    """List the cycles that workers have registered: when they run, and their latest run."""
    rows = [each.as_json() for each in _facts(session)]
    write_records(rows, _COLUMNS, output, id="name")
    if not rows:
        print_info("no cycles found; workers register the cycles of their application")


@command.command(
    "next", examples=("holdfast cycles next", "holdfast cycles next cleanup -o ndjson")
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@output_option
@with_database
def next_(session: CliSession, names: tuple[str, ...], output: Format) -> None:
    """Show the next scheduled times, in UTC."""
    facts = {each.cycle.name: each for each in _facts(session)}
    _require_known(names, facts)
    rows = [
        {"name": name, "at": at}
        for name, each in facts.items()
        if not names or name in names
        for at in each.as_json()["next"]
    ]
    write_records(sorted(rows, key=lambda row: row["at"]), _NEXT_COLUMNS, output, id="at")


@command.command(
    "runs",
    examples=(
        "holdfast cycles runs",
        "holdfast cycles runs cleanup --limit 5",
        "holdfast cycles runs cleanup -o json | jq '.[0].error'",
    ),
)
@click.argument("name", required=False, metavar="[NAME]")
@page_length_option
@output_option
@with_database
def runs(session: CliSession, name: str | None, limit: int, output: Format) -> None:
    """List the latest runs of a cycle, or of all cycles and ticks: outcome, duration, counters and error.

    Ticks have the name `tick`.
    """
    from holdfast.admin.cycles import shown_run

    found = session.run(session.admin.cycles.runs(session.caller(), name, limit))
    write_records([shown_run(each) for each in found], _RUN_COLUMNS, output)
    if not found:
        print_info("no runs found")


_names_argument = click.argument("names", nargs=-1, required=True, metavar="NAME...")


@command.command(
    "run-now", examples=("holdfast cycles run-now cleanup --reason 'disk is nearly full'",)
)
@_names_argument
@change_options
@with_database
def run_now(session: CliSession, names: tuple[str, ...], change: ChangeOptions) -> None:
    """Run cycles at the next tick, even if paused."""
    _change_cycles(session, names, change, "run")


@command.command("pause", examples=("holdfast cycles pause cleanup --reason 'being fixed'",))
@_names_argument
@change_options
@with_database
def pause(session: CliSession, names: tuple[str, ...], change: ChangeOptions) -> None:
    """Pause cycles."""
    _change_cycles(session, names, change, "pause")


@command.command("resume", examples=("holdfast cycles resume cleanup",))
@_names_argument
@change_options
@with_database
def resume(session: CliSession, names: tuple[str, ...], change: ChangeOptions) -> None:
    """Resume cycles; runs missed during the pause are not caught up."""
    _change_cycles(session, names, change, "resume")


def _change_cycles(
    session: CliSession, names: tuple[str, ...], change: ChangeOptions, verb: str
) -> None:
    _require_known(names, {each.cycle.name: each for each in _facts(session)})
    if change.dry_run:
        print_info(f"would {verb} {', '.join(names)}; nothing was changed")
        return
    admin, caller = session.admin.cycles, session.caller(change.reason)
    commands = {"run": admin.run_now, "pause": admin.pause, "resume": admin.resume}
    for name in names:
        session.run(commands[verb](caller, name))
    done = {"run": "will run at the next tick", "pause": "paused", "resume": "resumed"}
    print_info(f"{', '.join(names)}: {done[verb]}")


def _facts(session: CliSession) -> list[CycleFacts]:
    return session.run(session.admin.cycles.list(session.caller(), runs=1))


def _require_known(names: tuple[str, ...], known: dict[str, CycleFacts]) -> None:
    for name in names:
        if name not in known:
            near = nearest(name, known)
            raise CycleNotFound(f"there is no cycle {name[:60]!r}", help=near or None)
