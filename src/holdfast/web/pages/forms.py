"""What a form sends, and where its answer leads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from holdfast.core.errors import InvalidOption
from holdfast.web.middleware import read_body
from holdfast.web.pages.page_context import Visit

MOST_FIELDS = 1_100
LONGEST_REASON = 500

ASK, MORE, RATED = "ask:", "more:", "rated:"
"""Before the name of a move: its question, what else is to be known, and whether it may have a rate."""

_LOCAL = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]{0,2000}")


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a form; each may come several times."""

    values: Mapping[str, Sequence[str]]

    def all(self, name: str) -> Sequence[str]:
        """Return every value of a field."""
        return self.values.get(name, ())

    def one(self, name: str) -> str:
        """Return a field's value, an empty text when it was not sent."""
        return next(iter(self.all(name)), "").strip()

    def need(self, name: str) -> str:
        """Return a field's value. Raises: InvalidOption."""
        if value := self.one(name):
            return value
        raise InvalidOption(f"the form lacks {name}")


class Unasked(Exception):
    """A form that still has its question: no script has asked it."""

    def __init__(self, fields: Fields) -> None:
        """Take what was sent."""
        super().__init__()
        self.fields = fields


async def read_fields(visit: Visit) -> Fields:
    """Read the form of a visit. Raises: Unasked, InvalidOption, BodyTooLarge."""
    fields = await parse_fields(visit.request)
    if fields.one(ASK + fields.one("move")):
        raise Unasked(fields)
    return fields


async def parse_fields(request: Request) -> Fields:
    """Read the form of a request. Raises: InvalidOption, BodyTooLarge."""
    body = await read_body(request)
    try:
        values = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise InvalidOption("the form cannot be read, or has too many fields") from error
    fields = Fields(values)
    if len(fields.one("reason")) > LONGEST_REASON:
        raise InvalidOption(f"the reason is longer than {LONGEST_REASON} characters")
    return fields


def is_local_path(text: str) -> bool:
    """Say whether an address can only lead to a page of this server."""
    return _LOCAL.fullmatch(text) is not None


def led_back(
    visit: Visit,
    fields: Fields,
    move: str,
    moved: int = 1,
    left: int = 0,
    next: str | None = None,
    more: bool = False,
) -> Response:
    """Answer a change: numbers for a script, otherwise the page it came from, which tells what was done."""
    if "application/json" in visit.request.headers.get("accept", ""):
        return JSONResponse({"moved": moved, "left": left, "next": next})
    back = fields.one("back")
    target = back if is_local_path(back) else visit.url("/")
    said = urlencode({"done": move, "moved": moved, "left": left, "more": "yes" if more else ""})
    joint = "&" if urlsplit(target).query else "?"
    return RedirectResponse(f"{target}{joint}{said}", status_code=303)
