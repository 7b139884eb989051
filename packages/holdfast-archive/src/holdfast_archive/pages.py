"""The pages of the archive: its manifests, and one of them with its objects."""

from __future__ import annotations

from typing import cast

from starlette.responses import Response

from holdfast_archive.admin import STATES, ArchiveAdmin, Operation
from holdfast_archive.manifest import ManifestState
from holdfast_dashboard.forms import caller_with_reason, read_form, redirect_back
from holdfast_dashboard.page_context import PageContext, render_page

COLOURS = {
    "pending": "pending",
    "exporting": "running",
    "exported": "running",
    "verified": "completed",
    "dropped": "cancelled",
    "failed": "failed",
}
"""The colour of a state, by its name among those of jobs."""


async def list_page(context: PageContext) -> Response:
    """Show what is archived of each source, and the manifests."""
    source, state = context.query.get("source") or None, context.query.get("state") or None
    if state not in STATES:
        state = None
    archive = context.service.of(ArchiveAdmin)
    overview = await archive.overview(context.caller)
    page = await archive.page(
        context.caller, source, cast(ManifestState, state), after=context.query.get("after") or None
    )
    values = {
        "overview": overview.as_json(),
        "manifests": [each.as_json() for each in page.items],
        "source": source,
        "state": state,
        "states": STATES,
        "colours": COLOURS,
        "next": context.here(after=page.next) if page.next else None,
    }
    return render_page(context, "archive.html", "Archive", "archive", values, page.now)


async def get(context: PageContext) -> Response:
    """Show a manifest with its objects."""
    archive = context.service.of(ArchiveAdmin)
    facts = await archive.get(context.caller, context.request.path_params["name"])
    values = {
        "manifest": facts.as_json(),
        "work": archive.work_on(facts.manifest),
        "is_configured": archive.archive.is_configured,
        "colours": COLOURS,
    }
    return render_page(context, "manifest.html", facts.manifest.name, "archive", values, facts.now)


async def move(context: PageContext) -> Response:
    """Archive what is due, or verify or restore a manifest."""
    fields = await read_form(context)
    chosen = fields.choose(("run", "verify", "restore"))
    caller, archive = caller_with_reason(context, fields), context.service.of(ArchiveAdmin)
    if chosen == "run":
        await archive.request_run(caller)
        return redirect_back(context, fields, "run_cycle", subject="archiveExport")
    name, into = fields.need("name"), fields.one("into") or None
    work = await archive.begin(caller, cast(Operation, chosen), name, into)
    done = chosen if work.is_done else "archive_work"
    return redirect_back(context, fields, done, subject=work.manifest)


PAGES = (
    ("GET", "/archive", ("archive.list",), list_page),
    ("GET", "/archive/{name:path}", ("archive.list",), get),
    ("POST", "/archive", ("archive.run", "archive.verify", "archive.restore"), move),
)
