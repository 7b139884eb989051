"""Lists with a filter, and the tabs that narrow one to a state and keep the rest of its filter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from holdfast.admin.access import Caller
from holdfast.client.pagination import LOOK
from holdfast.client.views import Page
from holdfast.core.errors import QueryError
from holdfast.core.filters import format_filter, parse_filter
from holdfast.core.lifecycle import STATES
from holdfast_dashboard.page_context import PageContext

PAGE_LENGTH = 50

ReadPage = Callable[[Caller, str, int, str | None], Awaitable[Page[dict[str, Any]]]]


class Tab(NamedTuple):
    """A state to narrow the list to."""

    word: str
    href: str
    is_current: bool


def chosen_states(text: str) -> tuple[str, ...]:
    """Return the states that a filter asks for; of one that asks for none, or is invalid, all."""
    try:
        terms = parse_filter(text)
    except QueryError:
        return STATES
    chosen = [term.values for term in terms if term.field == "state"]
    return tuple(each for each in STATES if all(each in values for values in chosen))


def state_tabs(context: PageContext, path: str, text: str) -> list[Tab]:
    """Return a tab per state; choosing one keeps the rest of the filter."""
    try:
        terms = parse_filter(text)
    except QueryError:
        terms = ()
    chosen = chosen_states(text)
    rest = format_filter(term for term in terms if term.field != "state")
    tabs = [Tab("All", _address(context, path, rest), chosen == STATES)]
    for state in STATES:
        wanted = f"state:{state} {rest}".strip()
        address = _address(context, path, wanted)
        tabs.append(Tab(state.capitalize(), address, chosen == (state,)))
    return tabs


async def read_list(
    context: PageContext, path: str, read: ReadPage
) -> tuple[dict[str, Any], Sequence[dict[str, Any]], int]:
    """Read what a list shows above and below its rows, the rows, and the status.

    An invalid filter is explained above an empty list.
    """
    text = context.query.get("filter", "").strip()
    refusal = None
    try:
        page = await read(context.caller, text, PAGE_LENGTH, context.query.get("after") or None)
    except QueryError as error:
        refusal, page = error, Page((), None)
    values = {
        "filter": text,
        "refusal": refusal,
        "tabs": state_tabs(context, path, text),
        "next": page.next and context.here(after=page.next),
        "cut": page.cut,
        "look": LOOK,
    }
    return values, page.items, 400 if refusal else 200


def _address(context: PageContext, path: str, filter: str) -> str:
    address = context.url(path)
    return f"{address}?{urlencode({'filter': filter})}" if filter else address
