"""`holdfast cycles`: listing cycles with their next and latest runs, pausing and running them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from holdfast.cli.changes import ChangeOptions, change_named, change_options
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import (
    Column,
    Format,
    Record,
    columns,
    first_line,
    limit_option,
    output_option,
    to_seconds,
    write_records,
)
from holdfast.cli.session import CliSession, with_database

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.admin.cycles import CycleFacts

_OUTCOMES = {"completed": "green", "failed": "red", "crashed": "red"}
CYCLE_COLUMNS = (
    *columns(name="name", runs="words"),
    Column("next", lambda row: "paused" if row["paused"] else _first_time(row["next"])),
    Column("last", lambda row: to_seconds(_last_run(row).get("started_at"))),
    Column(
        "outcome", lambda row: _last_run(row).get("outcome"), lambda row: _colour(_last_run(row))
    ),
    Column("error", lambda row: first_line(_last_run(row).get("error"))),
)
_RUN_COLUMNS = (
    Column("started", lambda row: to_seconds(row["started_at"])),
    *columns("name", "slot"),
    Column("outcome", lambda row: row["outcome"], lambda row: _colour(row)),
    *columns(ms="duration_ms"),
    Column("counters", lambda row: _counters(row["counters"])),
    *columns("worker"),
    Column("error", lambda row: first_line(row["error"])),
)
_NEXT_COLUMNS = columns("name", "at")


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


def _last_run(row: Record) -> Record:
    return row["runs"][0] if row["runs"] else {}


def _colour(run: Record) -> str | None:
    return _OUTCOMES.get(str(run.get("outcome")))


@click.group(
    "cycles", cls=HelpGroup, examples=("holdfast cycles list", "holdfast cycles run-now cleanup")
)
def cycles() -> None:
    """List, run, pause and resume cycles."""


@cycles.command("list", examples=("holdfast cycles list", "holdfast cycles list -o json"))
@output_option
@with_database
def list_(session: CliSession, output: Format) -> None:
    """List the cycles that workers have registered: when they run, and their latest run."""
    rows = [each.as_json() for each in _facts(session)]
    empty = "no cycles found; workers register the cycles of their application"
    write_records(rows, CYCLE_COLUMNS, output, id="name", empty=empty)


@cycles.command("next", examples=("holdfast cycles next", "holdfast cycles next cleanup -o ndjson"))
@click.argument("names", nargs=-1, metavar="[NAME]...")
@output_option
@with_database
def next_(session: CliSession, names: tuple[str, ...], output: Format) -> None:
    """Show the next scheduled times, in UTC."""
    facts = {each.cycle.name: each for each in _facts(session)}
    rows = [
        {"name": name, "at": at}
        for name in (_find(names, facts) if names else facts)
        for at in facts[name].as_json()["next"]
    ]
    write_records(sorted(rows, key=lambda row: row["at"]), _NEXT_COLUMNS, output, id="at")


@cycles.command(
    "runs",
    examples=(
        "holdfast cycles runs",
        "holdfast cycles runs cleanup --limit 5",
        "holdfast cycles runs cleanup -o json | jq '.[0].error'",
    ),
)
@click.argument("name", required=False, metavar="[NAME]")
@limit_option(50)
@output_option
@with_database
def runs(session: CliSession, name: str | None, limit: int, output: Format) -> None:
    """List the latest runs of a cycle, or of all cycles and ticks: outcome, duration, counters and error.

    Ticks have the name `tick`.
    """
    from holdfast.admin.cycles import shown_run

    found = session.run(session.admin.cycles.runs(session.caller(), name, limit))
    rows = [shown_run(each) for each in found]
    write_records(rows, _RUN_COLUMNS, output, empty="no runs found")


def _add_change(name: str, done: str, text: str, example: str) -> None:
    """Add a command that changes cycles by name."""

    @cycles.command(name.replace("_", "-"), help=text, examples=(example,))
    @click.argument("names", nargs=-1, required=True, metavar="NAME...")
    @change_options
    @with_database
    def change_cycles(session: CliSession, names: tuple[str, ...], change: ChangeOptions) -> None:
        known = [each.cycle.name for each in _facts(session)]
        # A request waits for the first tick, which registers the cycle.
        _find(names, [*known, *session.app.cycle_specs] if name == "run_now" else known)
        run = partial(getattr(session.admin.cycles, name), session.caller(change.reason))
        listed = ", ".join(names)
        would = f"{name.removesuffix('_now')} {listed}"
        change_named(session, change, names, run, would=would, done=f"{listed}: {done}")


_add_change(
    "run_now",
    "will run at the next tick",
    "Run cycles at the next tick, even if paused.",
    "holdfast cycles run-now cleanup --reason 'disk is nearly full'",
)
_add_change(
    "pause", "paused", "Pause cycles.", "holdfast cycles pause cleanup --reason 'being fixed'"
)
_add_change(
    "resume",
    "resumed",
    "Resume cycles; runs missed during the pause are not caught up.",
    "holdfast cycles resume cleanup",
)


def _facts(session: CliSession) -> list[CycleFacts]:
    return session.run(session.admin.cycles.list(session.caller(), runs=1))


def _find(names: tuple[str, ...], known: Iterable[str]) -> dict[str, None]:
    """Return the cycles of these names with all their shards, each once. Raises: CycleNotFound."""
    from holdfast.commands.cycles import shards_of

    return {each: None for name in names for each in shards_of(name, known)}
