"""The list of jobs, one job, and moves of one or many."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response

from holdfast.admin.jobs import JobPage
from holdfast.client.pagination import LOOK
from holdfast.core.duration import spoken
from holdfast.core.errors import QueryError
from holdfast.core.filters import FIELDS, format_filter, parse_filter
from holdfast.core.records import STATES, Instant
from holdfast.web.pages.bulk import move
from holdfast.web.pages.drawing.job_timeline import life_of
from holdfast.web.pages.forms import read_fields
from holdfast.web.pages.page_context import Visit, show
from holdfast.web.pages.template_filters import instant_of

PAGE_LENGTH = 50

_TONES = {
    "failed": "bad",
    "completed": "good",
    "running": "busy",
    "cancelled": "cancelled",
    "blocked": "blocked",
    "pending": "pending",
}


class Tab(NamedTuple):
    """A state to narrow the list to."""

    word: str
    href: str
    here: bool


async def jobs(visit: Visit) -> Response:
    """Show a page of jobs; a filter that cannot be understood is explained above an empty one."""
    text = visit.query.get("filter", "").strip()
    refusal = None
    try:
        after = visit.query.get("after") or None
        page = await visit.service.jobs.page(visit.caller, text, PAGE_LENGTH, after)
    except QueryError as error:
        refusal, page = error, JobPage([], None)
    values = {
        "filter": text,
        "fields": list(FIELDS.values()),
        "refusal": refusal,
        "tabs": _tabs(visit, text),
        "jobs": page.items,
        "next": page.next and visit.here(after=page.next),
        "cut": page.cut,
        "look": LOOK,
    }
    return show(visit, "jobs.html", "Jobs", "jobs", values, status=400 if refusal else 200)


def _tabs(visit: Visit, text: str) -> list[Tab]:
    """Return the states to choose from; choosing one keeps the rest of the filter."""
    try:
        terms = parse_filter(text)
    except QueryError:
        terms = ()
    chosen = [value for term in terms if term.field == "state" for value in term.values]
    rest = format_filter(term for term in terms if term.field != "state")
    tabs = [Tab("All", _address(visit, rest), not chosen)]
    for state in STATES:
        wanted = f"state:{state} {rest}".strip()
        tabs.append(Tab(state.capitalize(), _address(visit, wanted), chosen == [state]))
    return tabs


def _address(visit: Visit, filter: str) -> str:
    path = visit.url("/jobs")
    return f"{path}?{urlencode({'filter': filter})}" if filter else path


class Why(NamedTuple):
    """A sentence around a span that counts down by itself, if it has one."""

    before: str
    until: str | None = None
    span: str = ""
    after: str = ""


async def job(visit: Visit) -> Response:
    """Show a job, and why it is not running in one sentence."""
    detail = await visit.service.jobs.get(visit.caller, visit.request.path_params["id"])
    shown = detail.job
    lease = shown["lease_expires_at"]
    expired = lease is not None and instant_of(lease) <= detail.now
    values = {
        "job": shown,
        "why": _counting(detail.why, shown, detail.now),
        "tone": "warn" if expired else _TONES[shown["state"]],
        "expired": expired,
        "life": life_of(shown, detail.attempts, detail.now),
        "attempts": detail.attempts,
        "blockers": detail.blockers,
        "progress": detail.progress,
    }
    return show(visit, "job.html", shown["type"], "jobs", values, detail.now)


def _counting(sentence: str, job: dict[str, Any], now: Instant) -> Why:
    """Let the span in a sentence count down where it is the time to the lease's end or the next attempt."""
    target = job["lease_expires_at"] if job["state"] == "running" else job["available_at"]
    if target is None or instant_of(target) <= now:
        return Why(sentence)
    span = spoken(instant_of(target) - now)
    before, found, after = sentence.partition(f" in {span}")
    return Why(f"{before} in ", target, span, after) if found else Why(sentence)


async def move_jobs(visit: Visit) -> Response:
    """Retry, cancel or run jobs now: those named, or a part of what a filter finds."""
    jobs = visit.service.jobs
    moves = {"retry": jobs.retry, "cancel": jobs.cancel, "run_now": jobs.run_now}
    return await move(visit, await read_fields(visit), moves)
