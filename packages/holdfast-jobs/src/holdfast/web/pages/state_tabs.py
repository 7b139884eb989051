"""Tabs that narrow a list to a state and keep the rest of its filter."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlencode

from holdfast.core.errors import QueryError
from holdfast.core.filters import format_filter, parse_filter
from holdfast.core.lifecycle import STATES
from holdfast.web.pages.page_context import PageContext


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


def _address(context: PageContext, path: str, filter: str) -> str:
    address = context.url(path)
    return f"{address}?{urlencode({'filter': filter})}" if filter else address
