"""The context of a page: its request, menu and flash message, rendered whole or as its live fragment."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse

from holdfast.admin.access import Caller
from holdfast.admin.service import Service
from holdfast.core.instants import Instant
from holdfast.core.lifecycle import Command
from holdfast.extensions import find_extensions, merge
from holdfast.web.middleware import root_path
from holdfast_dashboard.templates import count, environment, static_url

FRAGMENT_HEADER = "holdfast-part"
"""A script sends it to get a page's live fragment only."""


class MenuItem(NamedTuple):
    """An entry of the menu; the shortcut is g and its letter."""

    name: str
    word: str
    path: str
    letter: str


MENU = (
    MenuItem("overview", "Overview", "/", "o"),
    MenuItem("jobs", "Jobs", "/jobs", "j"),
    MenuItem("chains", "Chains", "/chains", "h"),
    MenuItem("dead", "Dead letters", "/dead", "d"),
    MenuItem("types", "Types", "/types", "t"),
    MenuItem("workers", "Workers", "/workers", "w"),
    MenuItem("cycles", "Cycles", "/cycles", "c"),
    *(MenuItem(*row) for each in find_extensions() for row in each.menu),
    MenuItem("tail", "Tail", "/tail", "l"),
    MenuItem("audit", "Audit", "/audit", "a"),
    MenuItem("system", "System", "/system", "s"),
)


@dataclass(frozen=True, slots=True)
class PageContext:
    """An authenticated request to the dashboard."""

    request: Request
    service: Service
    caller: Caller
    signed_in: bool = False
    menu: Sequence[MenuItem] = MENU

    @property
    def query(self) -> QueryParams:
        """The address's parameters."""
        return self.request.query_params

    @property
    def is_script(self) -> bool:
        """Whether a script of the page made the request."""
        return "application/json" in self.request.headers.get("accept", "")

    def url(self, path: str) -> str:
        """Return the address of a page, wherever the dashboard is mounted."""
        return f"{root_path(self.request)}{path}"

    def allowed_commands(self, noun: str, commands: Mapping[str, Command]) -> dict[str, Command]:
        """Return the commands on a noun that the caller's role permits."""
        return {name: each for name, each in commands.items() if self.caller.may(f"{noun}.{name}")}

    def moves(self, noun: str, commands: Mapping[str, Command], state: str) -> list[str]:
        """Return the names of those that a state allows, too."""
        allowed = self.allowed_commands(noun, commands)
        return [name for name, each in allowed.items() if each.allows(state)]

    def here(self, **changes: str | None) -> str:
        """Return this page's address with other parameters, without the flash message; None removes one."""
        fields: dict[str, str | None] = {**self.query, **dict.fromkeys(FLASH_PARAMS), **changes}
        kept = {name: value for name, value in fields.items() if value}
        path = self.request.url.path
        return f"{path}?{urlencode(kept)}" if kept else path


def render_page(
    context: PageContext,
    template: str,
    title: str,
    section: str,
    values: Mapping[str, Any],
    now: Instant | None = None,
    status: int = 200,
) -> HTMLResponse:
    """Render a page, or its live fragment when a script asks for that."""
    is_fragment = context.request.headers.get(FRAGMENT_HEADER) == "live"
    instant = time.time_ns() // 1000 if now is None else now
    variables = {
        "layout": "fragment.html" if is_fragment else "layout.html",
        "title": title,
        "section": section,
        "menu": context.menu,
        "caller": context.caller,
        "sees_types": context.caller.may("type.list"),
        "signed_in": context.signed_in,
        "database": "" if context.caller.principal.only else context.service.app.database.url,
        "url": context.url,
        "static": lambda name: static_url(root_path(context.request), name),
        "here": context.here(),
        "first": context.here(after=None),
        "cursor": context.query.get("after"),
        "flash": flash_message(context.query),
        "now": instant,
        "now_ms": instant // 1000,
        **values,
    }
    body = environment().get_template(template).render(variables)
    headers = {"Cache-Control": "no-store", "Vary": FRAGMENT_HEADER}
    return HTMLResponse(body, status, headers=headers)


class FlashMessage(NamedTuple):
    """A sentence about the change just made, and its tone."""

    sentence: str
    tone: str


FLASH_PARAMS = ("done", "moved", "left", "more", "subject")

_SENTENCES = {
    "retry": "{jobs} re-queued",
    "redrive": "{jobs} re-queued",
    "redrive_at_rate": "{jobs} to be re-queued by workers",
    "cancel": "{jobs} cancelled",
    "run_now": "{jobs} due now",
    "drop": "{jobs} dropped",
    "cancel_chain": "Chain cancelled",
    "start": "{name} started",
    "signal": "Signal {name} sent",
    "not_started": "Not started: an open chain already has this key",
    "delete_chain": "Chain deleted with {jobs}",
    "remove_subscription": "Subscription removed",
    "replay": "Replay complete: {jobs} added",
    "replay_part": "{jobs} added, events up to {name} replayed",
    "pause": "{name} paused",
    "set": "{name} set",
    "resume": "{name} resumed",
    "drain": "{name} is draining",
    "run_cycle": "{name} runs at the next tick",
    **merge("sentences"),
}
_DIGITS = 7
# An address can be forged: a name has no spaces, so that it cannot be a sentence.
_NAME = re.compile(r"[\w.:@/+-]{1,100}")


def flash_message(query: Mapping[str, str]) -> FlashMessage | None:
    """Return what the address says was done; only counts, a name and known sentences come from it."""
    sentence = _SENTENCES.get(query.get("done", ""))
    if sentence is None:
        return None
    moved, left = _number(query, "moved"), _number(query, "left")
    jobs = f"{count(moved)} {'job' if moved == 1 else 'jobs'}"
    subject = query.get("subject", "")
    parts = [sentence.format(jobs=jobs, name=subject if _NAME.fullmatch(subject) else "It")]
    if left:
        parts.append(f"{count(left)} skipped (in another state)")
    more = query.get("more") == "yes"
    if more:
        parts.append("more match, run it again")
    return FlashMessage("; ".join(parts), "warn" if left or more or not moved else "good")


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else 0
