"""Changes: their options and confirmation, and bulk actions on jobs or chains, selected by ids or by a filter."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import click

from holdfast.cli.completion import complete_filter
from holdfast.cli.console import is_interactive, print_info, print_warning, progress
from holdfast.cli.exit_codes import Exit
from holdfast.cli.lazy import HelpGroup
from holdfast.cli.output import (
    CHAIN_COLUMNS,
    JOB_COLUMNS,
    Column,
    Format,
    Record,
    columns,
    output_option,
    write_records,
    write_table,
)
from holdfast.cli.session import CliSession, with_database
from holdfast.core.duration import pluralize
from holdfast.core.errors import ChainError, CommandUsage, InvalidId, JobNotFound, NotConfirmed
from holdfast.core.filters import parse_filter
from holdfast.core.ids import digits_of_part, parse_id
from holdfast.core.lifecycle import STATES, Command

if TYPE_CHECKING:
    from holdfast.admin.bulk_audit import Bulk
    from holdfast.core.records import ChainRecord, JobRecord
    from holdfast.storage.store.chains import ChainStore
    from holdfast.storage.store.jobs import JobStore

T = TypeVar("T")
Selected: TypeAlias = "JobRecord | ChainRecord"

DEFAULT_LIMIT = 10_000
"""How many a filter can match at once, unless --limit says otherwise."""

SAMPLE = 5
BATCH = 500

_PAGE = 500
_MAX_WARNINGS = 5
_CHANGED_COLUMNS = columns("id", "type", "was")

reason_option = click.option("--reason", metavar="TEXT", help="Reason, recorded in the audit log.")


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """The options of a change; `bulk` is set for one of many."""

    yes: bool
    dry_run: bool
    reason: str | None
    output: Format
    bulk: Bulk | None = None


def change_options(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--yes`, `--dry-run`, `--reason` and `-o`, passed as `change`."""

    @click.option("--yes", "-y", is_flag=True, help="Skip confirmation.")
    @click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
    @reason_option
    @output_option
    @wraps(command)
    def with_change(*arguments: Any, **options: Any) -> T:
        own = {name: options.pop(name) for name in ("yes", "dry_run", "reason", "output")}
        return command(*arguments, change=ChangeOptions(**own), **options)

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
    if not change.yes:
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


def change_named(
    session: CliSession,
    change: ChangeOptions,
    names: Sequence[str],
    run: Callable[[str], Coroutine[Any, Any, object]],
    *,
    would: str,
    done: str,
    field: str = "name",
) -> None:
    """Change things by name, one by one, and say so; -o lists them, a dry run changes none of them."""
    if not change.dry_run:
        for each in names:
            session.run(run(each))
    if change.output != "table":
        write_records([{field: each} for each in names], (), change.output, id=field)
    print_info(f"would {would}; nothing was changed" if change.dry_run else done)


def bulk_options(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command a session, ids or a filter as `targets`, `--limit`, and the options of a change."""
    targets = click.argument(
        "targets",
        nargs=-1,
        required=True,
        metavar="ID... | FILTER...",
        shell_complete=complete_filter,
    )
    limit = click.option(
        "--limit",
        type=click.IntRange(min=1),
        default=DEFAULT_LIMIT,
        show_default=True,
        help="Maximum number a filter can match.",
    )
    return targets(limit(change_options(with_database(command))))


@dataclass(frozen=True, slots=True)
class BulkAction:
    """A command of the lifecycle for several jobs or chains.

    `run` changes what has these ids and returns the ids that were changed.
    """

    command: Command
    done: str
    noun: Literal["job", "chain"]
    run: Callable[[CliSession, Sequence[str], ChangeOptions], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Selection:
    """What was selected; `missing` ids do not exist, `has_more` says that the filter matches more."""

    found: Sequence[Selected]
    missing: Sequence[str] = ()
    by_filter: bool = False
    has_more: bool = False
    filter: str | None = None


def select(
    session: CliSession,
    noun: Literal["job", "chain"],
    targets: Sequence[str],
    limit: int,
    states: Sequence[str],
) -> Selection:
    """Select by ids, or by a filter; one without a state gets these. Raises: FilterError, CommandUsage for a mix."""
    ids = [session.find_id(noun, each) for each in targets if _is_id(each)]
    if ids and len(ids) < len(targets):
        raise CommandUsage("ids and a filter cannot be mixed", help="use one or the other")
    store = session.store.jobs if noun == "job" else session.store.chains
    if ids:
        wanted = list(dict.fromkeys(ids))
        found: Sequence[Selected] = session.read(store.get(wanted))
        known = {each.id for each in found}
        return Selection(found, [each for each in wanted if each not in known])
    text = " ".join(targets)
    names_state = any(term.field == "state" for term in parse_filter(text, words=False))
    if set(states) < set(STATES) and not names_state:
        text = f"state:{','.join(states)} {text}"
    matching = _read_matching(session, store, text, limit + 1)
    return Selection(matching[:limit], by_filter=True, has_more=len(matching) > limit, filter=text)


def _read_matching(
    session: CliSession, store: JobStore | ChainStore, text: str, limit: int
) -> list[Selected]:
    from holdfast.client.pagination import query_of

    found: list[Selected] = []
    before = None
    while len(found) < limit:
        query = query_of(text, min(_PAGE, limit - len(found)), before)
        batch: Sequence[Selected] = session.read(store.page(query))
        found += batch
        if len(batch) < query.limit:
            break
        before = batch[-1].id
    return found


def _is_id(text: str) -> bool:
    """Whether it is an id or a part of one; every term that a command takes has a sign that ids do not have."""
    if digits_of_part(text) is not None:
        return True
    try:
        parse_id(text)
    except InvalidId:
        return False
    return True


def run_bulk_action(
    session: CliSession, selection: Selection, change: ChangeOptions, action: BulkAction
) -> int:
    """Run an action on all that was selected and allows it, in batches. Return the exit code.

    Raises: JobNotFound, ChainNotFound or WrongState when ids were given and none allows it; NotConfirmed.
    """
    from holdfast.admin.bulk_audit import new_bulk
    from holdfast.admin.serializers import without_payloads

    command, noun = action.command, action.noun
    able = [each for each in selection.found if command.allows(each.state)]
    unable = [each for each in selection.found if not command.allows(each.state)]
    if not selection.by_filter and not able:
        raise _refusal(session, selection, unable, action)
    if not selection.found:
        write_records([], _CHANGED_COLUMNS, change.output)
        print_info(f"nothing matched: there is no {noun} to {command.verb}")
        return Exit.OK
    if not confirm_change(
        change,
        command.verb,
        noun,
        [without_payloads(each) for each in able],
        JOB_COLUMNS if noun == "job" else CHAIN_COLUMNS,
        many=selection.by_filter,
        has_more=selection.has_more,
    ):
        return Exit.OK
    if len(able) > 1:
        change = replace(change, bulk=new_bulk(selection.filter))
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


def add_bulk_command(
    group: HelpGroup, name: str, help: str, action: BulkAction, *examples: str
) -> None:
    """Add a command that runs an action on what ids or a filter select."""

    @group.command(name, help=help, examples=examples)
    @bulk_options
    def run_on_selected(
        session: CliSession, targets: tuple[str, ...], limit: int, change: ChangeOptions
    ) -> int:
        selection = select(session, action.noun, targets, limit, action.command.states)
        return run_bulk_action(session, selection, change, action)


def _refusal(
    session: CliSession, selection: Selection, unable: Sequence[Selected], action: BulkAction
) -> ChainError:
    from holdfast.commands.blockers import no_such_chain

    if unable:
        return action.command.refusal([(each.id, each.state) for each in unable], action.noun)
    id = selection.missing[0]
    if action.noun == "job":
        return JobNotFound(f"there is no job {id}")
    return session.read(no_such_chain(session.store, id))
