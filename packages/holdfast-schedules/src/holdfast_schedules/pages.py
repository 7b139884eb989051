"""The pages of schedules: all of them, one with its latest due times, and the form that sets one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.responses import RedirectResponse, Response

from holdfast.core.errors import HoldfastError, InvalidOption
from holdfast.core.redaction import redact_value
from holdfast_dashboard.forms import caller_with_reason, parse_form, read_form, redirect_back
from holdfast_dashboard.input_fields import read_json_input
from holdfast_dashboard.page_context import PageContext, render_page
from holdfast_schedules.admin import (
    ScheduleAdmin,
    ScheduleRequest,
    describe_times,
    schedule_json,
    times_of,
)
from holdfast_schedules.commands import ScheduleFacts
from holdfast_schedules.schedule_plan import clear_input
from holdfast_schedules.schedule_store import SchedulePage

PAGE = 50
COLOURS = {"scheduled": "pending", "paused": "paused", "late": "failed", "failing": "failed"}
SLOT_COLOURS = {
    "started": "completed",
    "skipped": "cancelled",
    "missed": "cancelled",
    "refused": "failed",
}
"""The colours of states, by their names among those of jobs."""

_STATES = ("", "active", "paused", "late")
_OPTIONAL = ("every", "cron", "timezone", "missed", "overlap", "jitter")
_NUMBERS = ("priority", "max_attempts")
_TEXTS = ("name", "type", *_OPTIONAL, *_NUMBERS)
_CORRECTABLE = (400, 404, 409, 413, 422)


async def list_page(context: PageContext) -> Response:
    """Show schedules by name."""
    query, admin = context.query, context.service.of(ScheduleAdmin)
    state = query.get("state", "") if query.get("state") in _STATES else ""
    page = SchedulePage(
        limit=PAGE + 1,
        after=query.get("after", ""),
        prefix=query.get("prefix", "").strip(),
        paused={"paused": True, "active": False}.get(state),
        late=state == "late",
    )
    found = await admin.list(context.caller, page)
    totals = await admin.totals(context.caller)
    shown = found[:PAGE]
    values = {
        "schedules": [schedule_json(each) for each in shown],
        "colours": COLOURS,
        "prefix": page.prefix,
        "state": state,
        "tabs": [
            {
                "word": (each or "all").capitalize(),
                "href": context.here(state=each, after=None),
                "is_current": each == state,
            }
            for each in _STATES
        ],
        "total": sum(each.count for each in totals),
        "paused": sum(each.paused for each in totals),
        "late": sum(each.late for each in totals),
        "next": context.here(after=shown[-1].schedule.name) if len(found) > PAGE else None,
    }
    now = found[0].schedule.now if found else None
    return render_page(context, "schedules.html", "Schedules", "schedules", values, now)


async def get(context: PageContext) -> Response:
    """Show a schedule with its latest due times."""
    admin, name = context.service.of(ScheduleAdmin), context.query.get("name", "")
    facts = await admin.get(context.caller, name)
    withheld = not context.caller.may("job.payload")
    shown = schedule_json(facts, admin.sealer, withheld)
    values = {
        "schedule": shown,
        "input": "" if withheld else _json_text(shown["input"]),
        "slots": await admin.history(context.caller, name),
        "colours": COLOURS,
        "slot_colours": SLOT_COLOURS,
    }
    return render_page(context, "schedule.html", name, "schedules", values, facts.schedule.now)


async def change(context: PageContext) -> Response:
    """Pause, resume, run or delete a schedule."""
    fields = await read_form(context)
    chosen, name = fields.choose(("pause", "resume", "run_now", "delete")), fields.need("name")
    admin = context.service.of(ScheduleAdmin)
    await getattr(admin, chosen)(caller_with_reason(context, fields), name)
    return redirect_back(context, fields, f"{chosen.removesuffix('_now')}_schedule", subject=name)


async def show_form(context: PageContext) -> Response:
    """Show the form of a new schedule, or of one that is changed."""
    name = context.query.get("name", "")
    if not name:
        confinement = context.caller.principal.confinement
        prefix = "" if confinement is None else confinement.prefix
        return await _render(context, {"name": prefix, "every": "", "input": "{}"}, None)
    facts = await context.service.of(ScheduleAdmin).get(context.caller, name)
    return await _render(context, _texts_of(context, facts), facts)


async def save(context: PageContext) -> Response:
    """Set the schedule that a form describes; what is wrong with it is said beside what was typed."""
    form = await parse_form(context.request)
    admin = context.service.of(ScheduleAdmin)
    editing = form.one("editing")
    facts = await admin.get(context.caller, editing) if editing else None
    typed = {name: form.one(name) for name in (*_TEXTS, "input", "reason")}
    try:
        before = None if facts is None else _stored_input(context, facts)
        wanted = ScheduleRequest(
            typed["name"],
            typed["type"],
            read_json_input(typed["input"] or "null", before),
            **{name: typed[name] or None for name in _OPTIONAL},  # type: ignore[arg-type]
            **{name: _number(name, typed[name]) for name in _NUMBERS},  # type: ignore[arg-type]
        )
        saved = await admin.set(caller_with_reason(context, form), wanted)
    except HoldfastError as error:
        if error.http_status not in _CORRECTABLE:
            raise
        return await _render(context, typed, facts, error)
    name = saved.schedule.name
    query = {"name": name, "done": "set_schedule", "moved": 1, "subject": name}
    return RedirectResponse(f"{context.url('/schedule')}?{urlencode(query)}", 303)


def _number(name: str, text: str) -> int | None:
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidOption(f"{name}={text[:40]!r} is not a whole number")
    return int(text) if text else None


def _stored_input(context: PageContext, facts: ScheduleFacts) -> Any:
    sealer = context.service.app.registry.sealer
    return msgspec.json.decode(clear_input(facts.schedule, sealer))


def _texts_of(context: PageContext, facts: ScheduleFacts) -> dict[str, str]:
    """Return the texts that the form of a schedule begins with."""
    record = facts.schedule
    shown = redact_value(_stored_input(context, facts))
    return {
        "name": record.name,
        "type": record.type,
        **times_of(record),
        "missed": record.missed,
        "overlap": record.overlap,
        "jitter": f"{record.jitter_ms}ms" if record.jitter_ms else "",
        "priority": str(record.priority),
        "max_attempts": "" if record.max_attempts is None else str(record.max_attempts),
        "input": _json_text(shown),
    }


def _json_text(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


async def _render(
    context: PageContext,
    texts: Mapping[str, str],
    facts: ScheduleFacts | None,
    error: HoldfastError | None = None,
) -> Response:
    may_list = context.caller.may("type.list")
    found = await context.service.types.list(context.caller) if may_list else []
    known = {each.totals.type for each in found}
    here = {each.name for each in context.service.app.registry if each.entry}
    values = {
        "texts": texts,
        "types": sorted(known | here),
        "editing": "" if facts is None else facts.schedule.name,
        "words": "" if facts is None else describe_times(facts.schedule),
        "refusal": error,
    }
    title = "New schedule" if facts is None else "Change schedule"
    status = 200 if error is None else error.http_status
    return render_page(context, "schedule_form.html", title, "schedules", values, status=status)


PAGES = (
    ("GET", "/schedules", ("schedule.list",), list_page),
    (
        "POST",
        "/schedules",
        ("schedule.pause", "schedule.resume", "schedule.run_now", "schedule.delete"),
        change,
    ),
    ("GET", "/schedule", ("schedule.list",), get),
    ("GET", "/schedule/form", ("schedule.set",), show_form),
    ("POST", "/schedule/form", ("schedule.set",), save),
)
