"""The jobs or chains a command acts on: ids, or all that match a filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import click

from holdfast.core.errors import CommandUsage, InvalidId
from holdfast.core.ids import parse_id

if TYPE_CHECKING:
    from holdfast.cli.session import CliSession
    from holdfast.core.records import ChainRecord, JobRecord
    from holdfast.storage.operation import Op
    from holdfast.storage.store.pagination import JobQuery

DEFAULT_LIMIT = 10_000
"""How many a filter may match at once, unless --limit says otherwise."""

_PAGE = 500

R = TypeVar("R", bound="JobRecord | ChainRecord")

filter_argument = click.argument("filter", nargs=-1, metavar="[FILTER]...")
targets_argument = click.argument("targets", nargs=-1, required=True, metavar="ID... | FILTER...")
limit_option = click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=DEFAULT_LIMIT,
    show_default=True,
    help="Maximum that a filter may match.",
)


@dataclass(frozen=True, slots=True)
class Selection(Generic[R]):
    """What was selected; `missing` ids do not exist, `has_more` says that the filter matches more."""

    found: list[R]
    missing: list[str]
    by_filter: bool
    has_more: bool


def select_jobs(
    session: CliSession, targets: Sequence[str], limit: int, states: Sequence[str]
) -> Selection[JobRecord]:
    """Select jobs by ids or by a filter; one without a state gets these."""
    store = session.store.jobs
    return select(session, targets, limit, states, store.get, store.page)


def select(
    session: CliSession,
    targets: Sequence[str],
    limit: int,
    states: Sequence[str],
    get: Callable[[Sequence[str]], Op[list[R]]],
    page: Callable[[JobQuery], Op[list[R]]],
) -> Selection[R]:
    """Select by ids or by a filter. Raises: FilterError, CommandUsage when both are mixed."""
    ids = [each.lower() for each in targets if _is_id(each)]
    if ids and len(ids) < len(targets):
        raise CommandUsage("ids and a filter cannot be mixed", help="use one or the other")
    if ids:
        wanted = list(dict.fromkeys(ids))
        found = session.read(get(wanted))
        known = {each.id for each in found}
        return Selection(found, [each for each in wanted if each not in known], False, False)
    text = " ".join(targets)
    if states and "state:" not in text:
        text = f"state:{','.join(states)} {text}"
    matching = _read_matching(session, text, limit + 1, page)
    return Selection(matching[:limit], [], True, len(matching) > limit)


def _read_matching(
    session: CliSession,
    text: str,
    limit: int,
    page: Callable[[JobQuery], Op[list[R]]],
) -> list[R]:
    from holdfast.client.pagination import query_of

    found: list[R] = []
    before = None
    while len(found) < limit:
        size = min(_PAGE, limit - len(found))
        batch = session.read(page(query_of(text, size, before)))
        found += batch
        if len(batch) < size:
            break
        before = batch[-1].id
    return found


def _is_id(text: str) -> bool:
    try:
        parse_id(text)
    except InvalidId:
        return False
    return True
