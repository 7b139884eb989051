"""`holdfast status`: how the queue stands, once or again and again, with conditions for monitors."""

from __future__ import annotations

import sys
from time import sleep
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.lazy import Command
from holdfast.cli.output import Column, Format, output_option, write_json, write_table
from holdfast.cli.session import Session, with_database
from holdfast.cli.talk import wants_colour
from holdfast.core.errors import CheckNotMet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.cli.conditions import Condition
    from holdfast.ops.health import Health
    from holdfast.storage.records import TypeTotals

_CLEAR = "\x1b[H\x1b[J"
_TYPE_COLUMNS = (
    Column("type", lambda row: row["type"]),
    Column("live", lambda row: row["live"]),
    Column("oldest due", lambda row: row["oldest"]),
    Column("completed", lambda row: row["completed"]),
    Column("failed", lambda row: row["failed"], lambda row: "red" if row["failed"] else None),
)


def _parsed(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> list[Condition]:
    from holdfast.cli.conditions import parse_condition

    return [parse_condition(each) for each in texts]


@click.command(
    "status",
    cls=Command,
    examples=(
        "holdfast status",
        "holdfast status --watch",
        "holdfast status --fail-if 'oldest>5m' --fail-if 'workers<1'",
        "holdfast status -o json | jq .due",
    ),
)
@click.option("--watch", is_flag=True, help="Again and again, until interrupted.")
@click.option(
    "--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="Seconds."
)
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    callback=_parsed,
    metavar="CONDITION",
    help="Exit 6 if this holds: oldest>5m, due>1000, failed>0, stuck>0, workers<1, unhandled>0 …",
)
@output_option
@with_database
def command(
    session: Session, watch: bool, interval: float, conditions: list[Condition], output: Format
) -> None:
    """Say how the queue stands: one sentence, figures, and job types.

    Counts of due and blocked jobs stop at 10,000, so that the question stays cheap; a plus says so.
    """
    from holdfast.cli.conditions import counted_for
    from holdfast.ops.health import read_health

    counted = counted_for(conditions)
    while True:
        health = session.read(read_health(session.store, counted))
        _write(health, output, watch)
        _check(health, conditions)
        if not watch:
            return
        sys.stdout.flush()
        sleep(interval)


def _check(health: Health, conditions: Sequence[Condition]) -> None:
    met = [each.told(health) for each in conditions if each.holds(health)]
    if met:
        raise CheckNotMet(met[0], details=met[1:])


def _write(health: Health, output: Format, watch: bool) -> None:
    match output:
        case "table" if watch and not sys.stdout.isatty():
            click.echo(_line(health))
        case "table":
            if watch:
                click.echo(_CLEAR, nl=False)
            _write_screen(health)
        case "json":
            write_json(_figures(health), indent=None if watch else 2)
        case "ndjson":
            write_json(_figures(health))
        case "id":
            for each in health.types:
                click.echo(each.type)


def _figures(health: Health) -> dict[str, Any]:
    from holdfast.ops.health import summed_up
    from holdfast.service.times import rfc3339

    return {
        "at": rfc3339(health.now),
        "summary": summed_up(health),
        **health.figures(),
        "types": [_type(each) for each in health.types],
    }


def _type(each: TypeTotals) -> dict[str, Any]:
    from holdfast.service.times import rfc3339

    return {
        "type": each.type,
        "live": each.live,
        "oldest_due_at": rfc3339(each.oldest_due_at),
        "completed": each.completed,
        "failed": each.failed,
        "cancelled": each.cancelled,
    }


def _write_screen(health: Health) -> None:
    from holdfast.core.duration import spoken
    from holdfast.ops.health import summed_up

    totals, words = health.totals, health.words()
    oldest = f"   the oldest since {spoken(health.oldest_us)}" if totals.due else ""
    silent = f", {health.silent} silent" if health.silent else ""
    sentence = click.style(summed_up(health), bold=True)
    click.echo(sentence, color=wants_colour(sys.stdout))
    beside = {
        "due": oldest,
        "running": f"   stuck {totals.stuck}",
        "workers": f" with {health.slots} slots{silent}",
    }
    for name, value in words.items():
        click.echo(f"  {name:<9} {value}{beside.get(name, '')}")
    if health.types:
        click.echo()
    oldest_of = {
        each.type: None if each.oldest_due_at is None else spoken(health.now - each.oldest_due_at)
        for each in health.types
    }
    rows = [{**_type(each), "oldest": oldest_of[each.type]} for each in health.types]
    write_table(rows, _TYPE_COLUMNS)


def _line(health: Health) -> str:
    from holdfast.ops.health import summed_up
    from holdfast.service.times import rfc3339

    words = "  ".join(f"{name} {value}" for name, value in health.words().items())
    return f"{rfc3339(health.now)}  {words}  {summed_up(health)}"
