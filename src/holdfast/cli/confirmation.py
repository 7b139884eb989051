"""The options that all changes share, and the confirmation of bulk changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from holdfast.cli.console import count_of, is_interactive, say, warn
from holdfast.cli.output import Column, Format, Record, output_option, write_records, write_table
from holdfast.core.errors import NotConfirmed

T = TypeVar("T")

SAMPLE = 5


@dataclass(frozen=True, slots=True)
class Act:
    """How a change was asked for."""

    yes: bool
    dry_run: bool
    reason: str | None
    output: Format


def change_options(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--yes`, `--dry-run`, `--reason` and `-o`, handed over as `act`."""

    @click.option("--yes", "-y", is_flag=True, help="Skip confirmation.")
    @click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
    @click.option("--reason", metavar="TEXT", help="Reason, recorded in the audit log.")
    @output_option
    @wraps(command)
    def packed(
        *arguments: Any,
        yes: bool,
        dry_run: bool,
        reason: str | None,
        output: Format,
        **options: Any,
    ) -> T:
        return command(*arguments, act=Act(yes, dry_run, reason, output), **options)

    return packed


def may_go_on(
    act: Act,
    verb: str,
    noun: str,
    records: Sequence[Record],
    columns: Sequence[Column],
    *,
    many: bool,
    more: bool = False,
    id: str = "id",
) -> bool:
    """Say what a change would touch, and whether it may be made. Raises: NotConfirmed.

    `many` are asked for: their number and a sample are shown first. `more` says that not all fitted.
    """
    if act.dry_run:
        write_records(records, columns, act.output, id=id)
        say(f"would {verb} {count_of(len(records), noun)}; nothing was changed")
        return False
    if not many or not records:
        return True
    sample = ", for example" if len(records) > 1 else ""
    say(f"about to {verb} {count_of(len(records), noun)}{sample}:")
    write_table(records[:SAMPLE], columns, to_people=True)
    if more:
        warn(f"more than {len(records)} match; run the command again for the rest")
    if act.yes:
        return True
    if is_interactive() and click.confirm("Continue?", err=True):
        return True
    raise NotConfirmed(f"the change to {count_of(len(records), noun)} was not confirmed")
