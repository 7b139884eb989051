"""Cursors: where a page ended, opaque to callers, valid only for the list and filter they came from.

Pages of a list: what the nouns have in common when they list.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias, TypeVar

import msgspec

from holdfast.client.query import query_of
from holdfast.client.views import Page
from holdfast.core.errors import InvalidCursor, InvalidId
from holdfast.core.ids import parse_id
from holdfast.storage.operation import Op
from holdfast.storage.query import JobQuery, Walk

_DIGEST_BYTES = 8


def make_cursor(subject: str, filter: str, last_id: str) -> str:
    """Return the cursor behind the item with this id."""
    raw = _digest(subject, filter) + parse_id(last_id).bytes
    return base64.urlsafe_b64encode(raw).decode()


def read_cursor(subject: str, filter: str, cursor: str) -> str:
    """Return the id at which the previous page ended. Raises: InvalidCursor."""
    try:
        raw = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
    except (AttributeError, UnicodeEncodeError, binascii.Error):
        raise InvalidCursor("the cursor is not one of ours") from None
    digest, id = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
    if digest != _digest(subject, filter):
        raise InvalidCursor(f"the cursor belongs to another list or filter than these {subject}")
    return _id(id)


def _id(raw: bytes) -> str:
    text = raw.hex()
    try:
        return str(parse_id("-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))))
    except InvalidId:
        raise InvalidCursor("the cursor is not one of ours") from None


def _digest(subject: str, filter: str) -> bytes:
    said = f"{subject}\0{' '.join(filter.split())}"
    return hashlib.blake2b(said.encode(), digest_size=_DIGEST_BYTES).digest()


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
