"""The jobs or chains a command acts on: ids, or all that match a filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import click

from holdfast.core.errors import CommandUsage, InvalidId
from holdfast.core.ids import parse_id

if TYPE_CHECKING:
    from holdfast.cli.session import Session
    from holdfast.core.records import JobRecord
    from holdfast.storage.operation import Op
    from holdfast.storage.query import JobQuery

MOST = 10_000
"""How many a filter may match at once, unless --limit says otherwise."""

_PAGE = 500


class HasId(Protocol):
    """Anything chosen by id."""

    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=HasId)

filter_argument = click.argument("filter", nargs=-1, metavar="[FILTER]...")
targets_argument = click.argument("targets", nargs=-1, required=True, metavar="ID... | FILTER...")
limit_option = click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=MOST,
    show_default=True,
    help="Maximum that a filter may match.",
)


@dataclass(frozen=True, slots=True)
class Choice(Generic[R]):
    """What was chosen; `missing` are ids that do not exist, `more` says that a filter found more."""

    found: list[R]
    missing: list[str]
    by_filter: bool
    more: bool

    @property
    def ids(self) -> list[str]:
        """The ids of what was found."""
        return [each.id for each in self.found]


def choose_jobs(
    session: Session, targets: Sequence[str], limit: int, implied: str = ""
) -> Choice[JobRecord]:
    """Choose jobs; `implied` is a term that a filter gets unless it speaks of the state itself."""
    store = session.store
    return choose(session, targets, limit, implied, store.jobs.get, store.jobs.page)


def choose(
    session: Session,
    targets: Sequence[str],
    limit: int,
    implied: str,
    get: Callable[[Sequence[str]], Op[list[R]]],
    page: Callable[[JobQuery], Op[list[R]]],
) -> Choice[R]:
    """Choose by ids or by a filter. Raises: FilterError, CommandUsage when both are mixed."""
    ids = [each.lower() for each in targets if _is_id(each)]
    if ids and len(ids) < len(targets):
        raise CommandUsage("ids and a filter cannot be mixed", help="give one or the other")
    if ids:
        wanted = list(dict.fromkeys(ids))
        found = session.read(get(wanted))
        known = {each.id for each in found}
        return Choice(found, [each for each in wanted if each not in known], False, False)
    text = " ".join(targets)
    if implied and "state:" not in text:
        text = f"{implied} {text}"
    chosen = _filtered(session, text, limit + 1, page)
    return Choice(chosen[:limit], [], True, len(chosen) > limit)


def _filtered(
    session: Session,
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
