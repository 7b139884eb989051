"""Bulk actions on jobs and chains, selected by ids or by a filter: confirmed, run in batches, reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from holdfast.cli.confirmation import ChangeOptions, confirm_change
from holdfast.cli.console import pluralize, print_info, print_warning, progress
from holdfast.cli.exit_codes import Exit
from holdfast.cli.output import Column, columns, write_records
from holdfast.cli.selection import Selection
from holdfast.core.errors import ChainError, ChainNotFound, JobNotFound
from holdfast.core.lifecycle import Command

if TYPE_CHECKING:
    from holdfast.cli.session import CliSession
    from holdfast.core.records import ChainRecord, JobRecord

BATCH = 500

_MAX_WARNINGS = 5
_NOT_FOUND: dict[str, type[ChainError]] = {"job": JobNotFound, "chain": ChainNotFound}
_CHANGED_COLUMNS = columns("id", "type", "was")


R = TypeVar("R", bound="JobRecord | ChainRecord")
RunBatch = Callable[["CliSession", Sequence[str], ChangeOptions], Iterable[str]]
"""Changes what has these ids; returns the ids that were changed."""


@dataclass(frozen=True, slots=True)
class BulkAction:
    """A command of the lifecycle for several jobs or chains."""

    command: Command
    done: str
    noun: str
    columns: Sequence[Column]
    run: RunBatch


def run_bulk_action(
    session: CliSession, selection: Selection[R], change: ChangeOptions, action: BulkAction
) -> int:
    """Run an action on all that was selected and allows it, in batches. Return the exit code.

    Raises: JobNotFound, ChainNotFound or WrongState when ids were given and none allows it; NotConfirmed.
    """
    from holdfast.admin.serializers import shown

    command, noun = action.command, action.noun
    able = [each for each in selection.found if command.allows(each.state)]
    unable = [each for each in selection.found if not command.allows(each.state)]
    if not selection.by_filter and not able:
        raise _refusal(selection, unable, action)
    if not confirm_change(
        change,
        command.verb,
        noun,
        [shown(each) for each in able],
        action.columns,
        many=selection.by_filter,
        has_more=selection.has_more,
    ):
        return Exit.OK
    changed: set[str] = set()
    for batch in progress([each.id for each in able], BATCH, command.verb):
        try:
            changed.update(action.run(session, batch, change))
        except ChainError:
            # The whole batch changed meanwhile, or other jobs wait for it; the summary names them.
            if len(selection.found) == 1:
                raise
    rows = [
        {"id": each.id, "type": each.type, "was": each.state} for each in able if each.id in changed
    ]
    write_records(rows, _CHANGED_COLUMNS, change.output)
    print_info(f"{action.done} {pluralize(len(changed), noun)}")
    skipped = [*unable, *(each for each in able if each.id not in changed)]
    for each in skipped[:_MAX_WARNINGS]:
        print_warning(f"{noun} {each.id} was skipped: it is {each.state}, or changed meanwhile")
    for id in selection.missing[:_MAX_WARNINGS]:
        print_warning(f"there is no {noun} {id}")
    return Exit.PARTLY if skipped or selection.missing else Exit.OK


def _refusal(selection: Selection[R], unable: Sequence[R], action: BulkAction) -> ChainError:
    if not unable:
        return _NOT_FOUND[action.noun](f"there is no {action.noun} {selection.missing[0]}")
    return action.command.refusal([(each.id, each.state) for each in unable], action.noun)
