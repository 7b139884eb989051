"""A visit to a page: who asks for what, and the answer as a whole page or as its live part."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse

from holdfast.admin.authorize import Caller
from holdfast.admin.service import Service
from holdfast.core.records import Instant
from holdfast.web.pages.flash import told
from holdfast.web.pages.templates import environment, version

LIVE_HEADER = "holdfast-part"


class Entry(NamedTuple):
    """A line of the menu; `letter` after g leads there."""

    name: str
    word: str
    path: str
    letter: str


MENU = (
    Entry("overview", "Overview", "/", "o"),
    Entry("jobs", "Jobs", "/jobs", "j"),
    Entry("dead", "Dead letters", "/dead", "d"),
    Entry("types", "Types", "/types", "t"),
    Entry("workers", "Workers", "/workers", "w"),
    Entry("cycles", "Cycles", "/cycles", "c"),
    Entry("tail", "Tail", "/tail", "l"),
    Entry("audit", "Audit", "/audit", "a"),
    Entry("system", "System", "/system", "s"),
)


@dataclass(frozen=True, slots=True)
class Visit:
    """One request to the dashboard, by somebody whose identity is established."""

    request: Request
    service: Service
    caller: Caller
    signed_in: bool = False

    @property
    def query(self) -> QueryParams:
        """What the address asks for."""
        return self.request.query_params

    def url(self, path: str) -> str:
        """Return the address of a page, wherever the dashboard is mounted."""
        return f"{self.request.scope.get('root_path', '').rstrip('/')}{path}"

    def here(self, **changes: str | None) -> str:
        """Return this page's address with other parameters; None takes one out."""
        fields: dict[str, str | None] = {**self.query, **dict.fromkeys(_PASSING), **changes}
        kept = {name: value for name, value in fields.items() if value}
        path = self.request.url.path
        return f"{path}?{urlencode(kept)}" if kept else path


_PASSING = ("done", "moved", "left", "more")


def show(
    visit: Visit,
    template: str,
    title: str,
    section: str,
    values: Mapping[str, Any],
    now: Instant | None = None,
    status: int = 200,
) -> HTMLResponse:
    """Answer with a page, or with its live part when a script asks for that."""
    part = visit.request.headers.get(LIVE_HEADER) == "live"
    instant = time.time_ns() // 1000 if now is None else now
    context = {
        "layout": "part.html" if part else "layout.html",
        "title": title,
        "section": section,
        "menu": MENU,
        "caller": visit.caller,
        "signed_in": visit.signed_in,
        "database": visit.service.app.database.url,
        "url": visit.url,
        "static": lambda name: visit.url(f"/static/{name}?v={version()}"),
        "here": visit.here(),
        "first": visit.here(after=None),
        "cursor": visit.query.get("after"),
        "done": told(visit.query),
        "now": instant,
        "now_ms": instant // 1000,
        **values,
    }
    body = environment().get_template(template).render(context)
    return HTMLResponse(body, status, headers={"Cache-Control": "no-store", "Vary": LIVE_HEADER})
