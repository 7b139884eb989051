"""Forms: their fields, their confirmation where no script asked for it, and the way back after a change."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from holdfast.admin.access import Caller
from holdfast.admin.bulk_audit import Bulk, new_bulk
from holdfast.core.errors import HoldfastError, InvalidOption
from holdfast.core.ids import parse_id
from holdfast.web.middleware import read_body, request_id_of
from holdfast.web.problems import problem
from holdfast_dashboard.page_context import PageContext, render_page
from holdfast_dashboard.templates import count

MAX_FIELDS = 1_100

ASK, MORE, RATED, DANGER = "ask:", "more:", "rated:", "danger:"
"""Field prefixes of a move: its question, what else to know, whether it takes a rate, and whether it destroys."""

_ASKED_HERE = ("reason", "rate")
_LOCAL = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]{0,2000}")


@dataclass(frozen=True, slots=True)
class FormFields:
    """The fields of a form; each may occur several times."""

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

    def choose(self, moves: Collection[str]) -> str:
        """Return the name of the move that was chosen. Raises: InvalidOption."""
        move = self.one("move")
        if move not in moves:
            raise InvalidOption(f"{move[:40]!r} is not one of {', '.join(moves)}")
        return move


class ConfirmationNeeded(Exception):
    """A form that still has its question: no script has asked it."""

    def __init__(self, fields: FormFields) -> None:
        super().__init__()
        self.fields = fields


async def read_form(context: PageContext) -> FormFields:
    """Read a confirmed form. Raises: ConfirmationNeeded, InvalidOption, BodyTooLarge."""
    fields = await parse_form(context.request)
    if fields.one(ASK + fields.one("move")):
        raise ConfirmationNeeded(fields)
    return fields


async def parse_form(request: Request) -> FormFields:
    """Read the form of a request. Raises: InvalidOption, BodyTooLarge."""
    body = await read_body(request, request.app.state.site.body_limit)
    try:
        values = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise InvalidOption("the form is invalid or has too many fields") from error
    return FormFields(values)


def caller_with_reason(context: PageContext, fields: FormFields) -> Caller:
    """Return the caller with the form's reason, for the audit log. Raises: InvalidOption."""
    return replace(context.caller, reason=fields.one("reason") or None)


def bulk_of(fields: FormFields) -> Bulk | None:
    """Return the action that this form is a part of, None for one job; the script sends the parts one by one."""
    if not fields.one("everything") and len(fields.all("id")) <= 1 and not fields.one("bulk"):
        return None
    filter = fields.one("filter") if fields.one("everything") else None
    given = fields.one("bulk")
    return Bulk(str(parse_id(given)), filter or None) if given else new_bulk(filter)


def is_local_path(text: str) -> bool:
    """Whether an address can only lead to a page of this server."""
    return _LOCAL.fullmatch(text) is not None


def render_confirmation(context: PageContext, fields: FormFields) -> Response:
    """Show a form's question as a page of its own; confirming sends the same form without it."""
    move, back, ids = fields.one("move"), fields.one("back"), len(fields.all("id"))
    these = f"{count(ids)} job{'' if ids == 1 else 's'}"
    question = fields.one(ASK + move).replace("{these}", these)
    values = {
        "more": fields.one(MORE + move),
        "is_rated": bool(fields.one(RATED + move)),
        "is_danger": bool(fields.one(DANGER + move)),
        "word": move.replace("_", " ").capitalize(),
        "action": context.request.url.path,
        "back": back if is_local_path(back) else context.url("/"),
        "kept": [
            (name, value)
            for name, found in fields.values.items()
            if ":" not in name and name not in _ASKED_HERE
            for value in found
        ],
    }
    return render_page(context, "confirm.html", question, "", values)


def redirect_back(
    context: PageContext,
    fields: FormFields,
    done: str,
    moved: int = 1,
    left: int = 0,
    next: str | None = None,
    more: bool = False,
    subject: str = "",
    bulk: str | None = None,
    refusal: HoldfastError | None = None,
) -> Response:
    """Respond to a change with the page it came from and a flash message; a script gets its address and counts."""
    back = fields.one("back")
    target = back if is_local_path(back) else context.url("/")
    flash = {
        "done": done,
        "moved": moved,
        "left": left,
        "more": "yes" if more else "",
        "subject": subject,
    }
    query = urlencode({key: value for key, value in flash.items() if value})
    joint = "&" if urlsplit(target).query else "?"
    url = f"{target}{joint}{query}"
    if context.is_script:
        answer: dict[str, Any] = {
            "moved": moved,
            "left": left,
            "next": next,
            "url": url,
            "bulk": bulk,
        }
        if refusal is not None:
            answer["refusal"] = problem(refusal, request_id_of(context.request))
        return JSONResponse(answer)
    return RedirectResponse(url, status_code=303)


async def move_named(
    context: PageContext, moves: Mapping[str, Callable[[Caller, str], Awaitable[Any]]]
) -> Response:
    """Make the move that a form chose for the type, worker or cycle that it names."""
    fields = await read_form(context)
    move, name = fields.choose(moves), fields.need("name")
    await moves[move](caller_with_reason(context, fields), name)
    done = "run_cycle" if move == "run_now" else move
    return redirect_back(context, fields, done, subject=fields.one("label") or name)
