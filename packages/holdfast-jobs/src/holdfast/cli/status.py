"""`holdfast status`: the queue's status, once or repeatedly, with conditions for monitors such as `oldest>5m`."""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import sleep
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.console import wants_colour
from holdfast.cli.interrupts import take_interrupts
from holdfast.cli.lazy import HelpCommand
from holdfast.cli.output import (
    Column,
    Format,
    clean,
    columns,
    flag_column,
    interval_option,
    output_option,
    truncate,
    write_json,
    write_table,
)
from holdfast.cli.session import CliSession, with_database
from holdfast.core.duration import format_duration, milliseconds
from holdfast.core.errors import CheckNotMet, CommandUsage, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.commands.health import Health
    from holdfast.core.statistics import TypeTotals

_CONDITION = re.compile(r"\s*([a-z_]+)\s*(>=|<=|>|<|=)\s*(\S+)\s*", re.ASCII)
_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
}
_DURATION = "oldest"
_BOUNDED = {"due", "blocked", "stuck", "unreadable"}
_FIGURES: Mapping[str, Callable[[Health], int]] = {
    "oldest": lambda health: health.oldest_us // 1000,
    "due": lambda health: health.totals.due,
    "running": lambda health: health.totals.running,
    "blocked": lambda health: health.totals.blocked,
    "live": lambda health: health.totals.live,
    "stuck": lambda health: health.totals.stuck,
    "failed": lambda health: health.totals.failed,
    # deprecated: the name of `failed` in earlier versions
    "dead": lambda health: health.totals.failed,
    "workers": lambda health: health.workers,
    "silent": lambda health: health.silent,
    "unhandled": lambda health: len(health.unhandled),
    "unreadable": lambda health: health.unreadable,
}


@dataclass(frozen=True, slots=True)
class FailCondition:
    """A figure of the queue, a comparison and a limit; ages are milliseconds."""

    figure: str
    comparison: str
    limit: int

    def is_met(self, health: Health) -> bool:
        """Whether the comparison is true."""
        return _COMPARE[self.comparison](_FIGURES[self.figure](health), self.limit)

    def describe(self, health: Health) -> str:
        """Return the compared values in words."""
        value = _FIGURES[self.figure](health)
        found, limit = (self._format(each) for each in (value, self.limit))
        return f"{self.figure} is {found}, {self.comparison} {limit}"

    def _format(self, value: int) -> str:
        return format_duration(value) if self.figure == _DURATION else str(value)


def count_limit(conditions: Iterable[FailCondition]) -> int:
    """Return how far live jobs must be counted to decide these conditions."""
    from holdfast.commands.health import COUNTED

    limits = [each.limit + 1 for each in conditions if each.figure in _BOUNDED]
    return max([COUNTED, *limits])


def parse_condition(text: str) -> FailCondition:
    """Read a condition. Raises: CommandUsage, InvalidDuration."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise CommandUsage(
            f"{text[:40]!r} is not a condition", help="write it like 'oldest>5m' or 'failed>=10'"
        )
    figure, comparison, limit = match.groups()
    if figure not in _FIGURES:
        near = nearest(figure, _FIGURES) or f"use one of {', '.join(_FIGURES)}"
        raise CommandUsage(f"unknown figure {figure!r}", help=near)
    if figure == _DURATION:
        return FailCondition(figure, comparison, milliseconds(limit))
    if not (limit.isascii() and limit.isdigit() and len(limit) < 10):
        raise CommandUsage(f"{limit[:20]!r} is not a whole number", help=f"write {figure}>10")
    return FailCondition(figure, comparison, int(limit))


PIPE_WIDTH = 120
"""What pagers, logs and mails show of a line; `-o json` has everything in full."""
_ALWAYS = ("due", "running", "failed", "workers")
_CLEAR = "\x1b[H\x1b[J"
_TYPE_COLUMNS = (
    *columns("type", "live"),
    Column("oldest due", lambda row: row["oldest"]),
    *columns("completed"),
    flag_column("failed", "red"),
)


@click.command(
    "status",
    cls=HelpCommand,
    examples=(
        "holdfast status",
        "holdfast status --watch",
        "holdfast status --fail-if 'oldest>5m' --fail-if 'workers<1'",
        "holdfast status -o json | jq .due",
    ),
)
@click.option("--watch", is_flag=True, help="Repeat until interrupted.")
@interval_option(0.1)
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    callback=lambda _, __, texts: [parse_condition(each) for each in texts],
    metavar="CONDITION",
    help="Exit 6 if true: oldest>5m, due>1000, failed>0, stuck>0, workers<1, unhandled>0 …",
)
@output_option
@with_database
def status(
    session: CliSession,
    watch: bool,
    interval: float,
    conditions: list[FailCondition],
    output: Format,
) -> None:
    """Show the queue's status: a one-sentence summary, counts and job types.

    Counts of due and blocked jobs stop at 10,000 (shown as 10,000+) to keep the query cheap.
    """
    from holdfast.commands.health import read_health

    counted = count_limit(conditions)
    if watch:
        take_interrupts()
    while True:
        health = session.read(read_health(session.store, counted))
        _write(health, output, watch)
        _check(health, conditions)
        if not watch:
            return
        sys.stdout.flush()
        sleep(interval)


def _check(health: Health, conditions: Sequence[FailCondition]) -> None:
    met = [each.describe(health) for each in conditions if each.is_met(health)]
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
        case "json" | "ndjson":
            write_json(_figures(health), indent=2 if output == "json" and not watch else None)
        case "id":
            for each in health.types:
                click.echo(each.type)


def _figures(health: Health) -> dict[str, Any]:
    from holdfast.admin.serializers import health_json

    return {
        **health_json(health),
        "dead": health.totals.failed,  # deprecated: the name of `failed` in earlier versions
        "types": [_type(each) for each in health.types],
    }


def _type(each: TypeTotals) -> dict[str, Any]:
    from holdfast.admin.serializers import plain

    return {**plain(each), "dead": each.failed}


def _write_screen(health: Health) -> None:
    from holdfast.commands.health import summarize
    from holdfast.commands.limits import partition_words
    from holdfast.core.duration import format_span, pluralize

    totals, words = health.totals, health.words()
    oldest = f"   oldest waiting {format_span(health.oldest_us)}" if totals.due else ""
    silent = f", {health.silent} silent" if health.silent else ""
    sentence = click.style(summarize(health), bold=True)
    click.echo(sentence, color=wants_colour(sys.stdout))
    suffixes = {
        "due": oldest,
        "running": f"   stuck {totals.stuck}",
        "workers": f" with {pluralize(health.slots, 'slot')}{silent}",
    }
    width = max(map(len, words))
    for name, value in words.items():
        click.echo(f"  {name:<{width}} {value}{suffixes.get(name, '')}")
    for setting in health.paused:
        by = f" by {clean(setting.paused_by)}" if setting.paused_by else ""
        click.echo(f"  {'paused':<{width}} {clean(setting.type)}{by}")
    for rest in health.paused_keys:
        left = format_span((rest.paused_until or 0) - health.now)
        why = f": {clean(rest.reason)}" if rest.reason else ""
        click.echo(f"  {'paused':<{width}} {clean(partition_words(rest.id))} for {left}{why}")
    if health.types:
        click.echo()
    rows = []
    for each in health.types:
        due = each.oldest_due_at
        rows.append(
            {**_type(each), "oldest": None if due is None else format_span(health.now - due)}
        )
    write_table(rows, _TYPE_COLUMNS, pipe_width=PIPE_WIDTH)


def _line(health: Health) -> str:
    from holdfast.commands.health import summarize
    from holdfast.core.instants import to_datetime

    words = health.words()
    shown = [f"{name} {value}" for name, value in words.items() if name in _ALWAYS or value != "0"]
    time = f"{to_datetime(health.now):%Y-%m-%dT%H:%M:%SZ}"
    return truncate("  ".join([time, *shown, summarize(health)]), PIPE_WIDTH)
