"""A change that no script has asked about: the dialog's question as a page of its own."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.web.pages.forms import ASK, MORE, RATED, Fields, is_local_path
from holdfast.web.pages.page_context import Visit, show
from holdfast.web.pages.template_filters import count

_ASKED_HERE = ("reason", "rate")


def ask_first(visit: Visit, fields: Fields) -> Response:
    """Answer a form with its question; saying yes sends the same form without it."""
    move, back, ids = fields.one("move"), fields.one("back"), len(fields.all("id"))
    these = f"{count(ids)} job{'' if ids == 1 else 's'}"
    question = fields.one(ASK + move).replace("{these}", these)
    values = {
        "more": fields.one(MORE + move),
        "is_rated": bool(fields.one(RATED + move)),
        "word": move.replace("_", " ").capitalize(),
        "action": visit.request.url.path,
        "back": back if is_local_path(back) else visit.url("/"),
        "kept": [
            (name, value)
            for name, found in fields.values.items()
            if ":" not in name and name not in _ASKED_HERE
            for value in found
        ],
    }
    return show(visit, "ask.html", question, "", values)
