"""Pages of a list: what the nouns have in common when they list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias, TypeVar

import msgspec

from holdfast.client.cursor import make_cursor, read_cursor
from holdfast.client.query import query_of
from holdfast.client.views import Page
from holdfast.storage.operation import Op
from holdfast.storage.query import JobQuery, Walk

PAGE_LENGTH = 50

LOOK = 10_000
"""A page looks at this many rows at most; a filter that few of them fit is gone on with from where it stopped."""

Subject: TypeAlias = Literal["jobs", "chains"]


class Record(Protocol):
    """Anything a list is ordered by the id of."""

    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=Record)
T = TypeVar("T")


def read_page(
    subject: Subject,
    filter: str,
    limit: int,
    after: str | None,
    read: Callable[[JobQuery, int], Op[Walk[R]]],
    show: Callable[[R], T],
) -> Op[Page[T]]:
    """Read one page, looking at a bounded number of rows. Raises: FilterError, InvalidOption, InvalidCursor."""
    before = None if after is None else read_cursor(subject, filter, after)
    query = query_of(filter, limit, before)
    # One more than was asked for tells whether anything follows.
    found = yield from read(msgspec.structs.replace(query, limit=limit + 1), LOOK)
    shown = tuple(show(each) for each in found.records[:limit])
    if len(found.records) > limit:
        return Page(shown, make_cursor(subject, filter, found.records[limit - 1].id))
    if found.end is None:
        return Page(shown, None)
    return Page(shown, make_cursor(subject, filter, found.end), cut=True)
