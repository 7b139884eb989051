"""The list of jobs, one job, and moves of one or many."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from holdfast.admin.jobs import JobDetail, Moved
from holdfast.core.duration import format_span
from holdfast.core.errors import InvalidOption, JobNotFound, WrongState
from holdfast.core.filters import FIELDS
from holdfast.core.instants import Instant
from holdfast.core.lifecycle import JOB_COMMANDS, STATES, TERMINAL
from holdfast.extensions import rows
from holdfast_dashboard.drawing import step_bars, time_breakdown
from holdfast_dashboard.forms import (
    FormFields,
    bulk_of,
    caller_with_reason,
    read_form,
    redirect_back,
)
from holdfast_dashboard.page_context import PageContext, render_page
from holdfast_dashboard.page_reads import PageReads
from holdfast_dashboard.state_tabs import chosen_states, read_list
from holdfast_dashboard.templates import compact_json, instant_of

BATCH = 100

_ID_PART = re.compile(r"(?:…|\.\.\.)?[0-9A-Fa-f-]{6,36}(?:…|\.\.\.)?")

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}.*")

_STEP_CHIPS = {
    "done": ("completed", "done"),
    "failed": ("failed", "failed"),
    "timed_out": ("failed", "timed out"),
    "open": ("pending", ""),
}
_OPEN_WORDS = {
    "step": "retrying",
    "sleep": "sleeping",
    "wait": "waiting",
    "run": "waiting",
    "cursor": "open",
}

_TONES = {"failed": "bad", "completed": "good", "running": "busy"}
"""How the sentence about a job in a state looks; other states have a look of their own."""


async def list_page(context: PageContext) -> Response:
    """Show a page of jobs, or the one whose id was typed."""
    text = context.query.get("filter", "").strip()
    if _ID_PART.fullmatch(text) and (
        found := await context.service.of(PageReads).find(context.caller, text)
    ):
        return RedirectResponse(context.url(f"/jobs/{found}"), 303)
    values, jobs, status = await read_list(context, "/jobs", context.service.jobs.page)
    values |= {
        "fields": list(FIELDS.values()),
        "keys": " ".join(f"{each.name}{each.operators[0]}" for each in FIELDS.values()),
        "states": STATES,
        "export": f"{context.url('/api/v1/jobs/export')}?{urlencode({'filter': text})}",
        "jobs": jobs,
        "commands": {
            name: each
            for name, each in context.allowed_commands("job", JOB_COMMANDS).items()
            if any(map(each.allows, chosen_states(text)))
        },
    }
    return render_page(context, "jobs.html", "Jobs", "jobs", values, status=status)


class Sentence(NamedTuple):
    """A sentence, around a time that counts down if it has one."""

    before: str
    until: str | None = None
    span: str = ""
    after: str = ""


async def get(context: PageContext) -> Response:
    """Show a job, and in one sentence why it isn't running."""
    detail = await context.service.jobs.get(context.caller, context.request.path_params["id"])
    job = detail.job
    lease = job["lease_expires_at"]
    is_expired = lease is not None and instant_of(lease) <= detail.now
    values = {
        "job": job,
        "moves": context.moves("job", JOB_COMMANDS, job["state"]),
        "why": _with_countdown(detail, detail.now),
        "waits_for": detail.waits_for,
        "tone": "warn" if is_expired else _TONES.get(job["state"], job["state"]),
        "is_expired": is_expired,
        "breakdown": time_breakdown(job, detail.attempts, detail.now),
        "attempts": detail.attempts,
        "blockers": [each for each in detail.blockers if not each["called"]],
        "called": [each for each in detail.blockers if each["called"]],
        "steps": _step_rows(detail),
        "steps_cut": detail.steps_cut,
        "progress": detail.progress,
        "cards": [card for make in rows("job_cards") if (card := await make(context, job))],
        "trace_url": trace_link(context.service.settings.holdfast.trace_url, job["trace"]),
    }
    return render_page(context, "job.html", job["type"], "jobs", values, detail.now)


def _step_rows(detail: JobDetail) -> list[dict[str, Any]]:
    """Return the steps with their bars and chips."""
    job = detail.job
    end = instant_of(job["finished_at"]) if job["finished_at"] else detail.now
    bars = step_bars(detail.steps, instant_of(job["created_at"]), end)
    rows = []
    for each, bar in zip(detail.steps, bars, strict=True):
        chip, word = _STEP_CHIPS[each["state"]]
        if each["state"] == "open":
            word = _OPEN_WORDS[each["kind"]] if job["state"] not in TERMINAL else "not ended"
        if each["unused"]:
            word += ", not used"
        spent = None if each["took_ms"] is None else format_span(each["took_ms"] * 1000)
        result = None if each["output"] is None else compact_json(each["output"])
        rows.append(
            {**each, "bar": bar, "chip": chip, "word": word, "took": spent, "result": result}
        )
    return rows


async def send_signal(context: PageContext) -> Response:
    """Send the signal that a function waits for."""
    fields = await read_form(context)
    fields.choose(("signal",))
    name, key, text = fields.need("name"), fields.one("key"), fields.one("data")
    try:
        data = json.loads(text or "null")
    except ValueError as error:
        raise InvalidOption(
            f"the data is not JSON: {error}", help='quote text, as in "yes"'
        ) from None
    except RecursionError:
        raise InvalidOption("the data is nested too deep") from None
    await context.service.signals.send(caller_with_reason(context, fields), name, key or None, data)
    return redirect_back(context, fields, "signal", subject=name)


def trace_link(template: str | None, traceparent: str | None) -> str | None:
    """Return the address of a job's trace, None where it has none or no address is set."""
    match = _TRACEPARENT.fullmatch(traceparent or "")
    if template is None or match is None:
        return None
    return template.format(trace_id=match[1], span_id=match[2])


def _with_countdown(detail: JobDetail, now: Instant) -> Sentence:
    """Let the time in a sentence count down: to the lease's end, the next permit of a rate, or the next attempt."""
    sentence, job = detail.why, detail.job
    due = detail.next_permit_at or job["available_at"]
    target = job["lease_expires_at"] if job["state"] == "running" else due
    if target is None or instant_of(target) <= now:
        return Sentence(sentence)
    span = format_span(instant_of(target) - now)
    for word in ("in", "for"):
        before, found, after = sentence.partition(f" {word} {span}")
        if found:
            return Sentence(f"{before} {word} ", target, span, after)
    return Sentence(sentence)


async def move(context: PageContext) -> Response:
    """Retry, cancel or run jobs now; of several, those in another state are skipped."""
    fields = await read_form(context)
    name = fields.choose(JOB_COMMANDS)
    jobs = context.service.jobs
    make = {"retry": jobs.retry, "cancel": jobs.cancel, "run_now": jobs.run_now}[name]
    ids, next = await _chosen_ids(context, fields)
    bulk = bulk_of(fields)
    caller = replace(caller_with_reason(context, fields), bulk=bulk)
    refusal = None
    try:
        # Of a filter, the last page may be empty; a form without a filter names what it moves.
        is_over = not ids and fields.one("everything")
        report = Moved([], []) if is_over else await make(caller, ids)
    except (WrongState, JobNotFound) as error:
        # A script sends many jobs in parts, and shows the refusal only if no part moved any.
        if bulk is None or not context.is_script:
            raise
        refusal, report = error, Moved([], list(ids))
    moved, left = len(report.moved), len(report.left)
    part_of = None if bulk is None else bulk.id
    return redirect_back(context, fields, name, moved, left, next, bulk=part_of, refusal=refusal)


async def _chosen_ids(context: PageContext, fields: FormFields) -> tuple[Sequence[str], str | None]:
    """Return the ids that a form names, or a batch of what its filter matches and where the next begins."""
    if not fields.one("everything"):
        return fields.all("id"), None
    after = fields.one("after") or None
    page = await context.service.jobs.page(context.caller, fields.one("filter"), BATCH, after)
    return [each["id"] for each in page.items], page.next
