"""The options that all changes share, and the confirmation of bulk changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from holdfast.cli.console import is_interactive, pluralize, print_info, print_warning
from holdfast.cli.output import Column, Format, Record, output_option, write_records, write_table
from holdfast.core.errors import NotConfirmed

T = TypeVar("T")

SAMPLE = 5


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """The options of a change."""

    yes: bool
    dry_run: bool
    reason: str | None
    output: Format


def change_options(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--yes`, `--dry-run`, `--reason` and `-o`, passed as `change`."""

    @click.option("--yes", "-y", is_flag=True, help="Skip confirmation.")
    @click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
    @click.option("--reason", metavar="TEXT", help="Reason, recorded in the audit log.")
    @output_option
    @wraps(command)
    def with_change(
        *arguments: Any,
        yes: bool,
        dry_run: bool,
        reason: str | None,
        output: Format,
        **options: Any,
    ) -> T:
        return command(*arguments, change=ChangeOptions(yes, dry_run, reason, output), **options)

    return with_change


def confirm_change(
    change: ChangeOptions,
    verb: str,
    noun: str,
    records: Sequence[Record],
    columns: Sequence[Column],
    *,
    many: bool,
    has_more: bool = False,
    id: str = "id",
) -> bool:
    """Show what would change; return whether to change it. Raises: NotConfirmed.

    `many` need a confirmation, with their number and a sample. `has_more` says that the limit cut some off.
    """
    if change.dry_run:
        write_records(records, columns, change.output, id=id)
        print_info(f"would {verb} {pluralize(len(records), noun)}; nothing was changed")
        return False
    if not many or not records:
        return True
    sample = ", for example" if len(records) > 1 else ""
    print_info(f"about to {verb} {pluralize(len(records), noun)}{sample}:")
    write_table(records[:SAMPLE], columns, to_stderr=True)
    if has_more:
        print_warning(f"more than {len(records)} match; run the command again for the rest")
    if change.yes:
        return True
    if is_interactive() and click.confirm("Continue?", err=True):
        return True
    raise NotConfirmed(f"the change to {pluralize(len(records), noun)} was not confirmed")
