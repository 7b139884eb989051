"""The web page: tenders, their deliveries, the runs of the cycles and the archive: `uvicorn tenders.web:web`.

Rendered here, and drawn again by a small script while cycles run. Everything can be read without the script too.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from importlib.resources import files as resources
from typing import Annotated, Any
from uuid import UUID

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast import HoldfastError, RunInfo
from holdfast.contrib.fastapi import lifespan, mount_dashboard, problem_handler, session
from holdfast_archive.manifest import Manifest
from holdfast_leases import to_datetime
from tenders.archiving import archive
from tenders.database import Session
from tenders.models import Delivery, Installation, NotificationEvent, Tender
from tenders.regions import REGIONS
from tenders.worker import jobs

SHOWN = 15
RUNS_SEARCHED = 200
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
STATIC = {"icon.svg": "image/svg+xml", "page.css": "text/css", "page.js": "text/javascript"}
KINDS = {
    "ok": "good",
    "sent": "good",
    "pending": "busy",
    "retryable": "busy",
    "running": "busy",
    "completed": "good",
    "verified": "good",
    "dropped": "good",
    "failed": "bad",
    "invalid": "bad",
    "abandoned": "bad",
}
"""How a state looks."""

web = FastAPI(
    title="Tenders",
    lifespan=lifespan(jobs),
    exception_handlers={HoldfastError: problem_handler},
    docs_url=None,
    openapi_url=None,
)
templates = Environment(loader=PackageLoader("tenders"), autoescape=True, undefined=StrictUndefined)
templates.globals.update(regions=REGIONS, kinds=KINDS)
Db = Annotated[AsyncSession, session(Session)]


def _pesos(amount: int | None) -> str:
    return "" if amount is None else f"$ {amount:,}".replace(",", ".")


def _moment(moment: datetime | int | None) -> str:
    known = to_datetime(moment) if isinstance(moment, int) else moment
    return "" if known is None else f"{known.astimezone(UTC):%Y-%m-%d %H:%M}"


def _seconds(run: Any) -> str:
    if run.finished_at is None:
        return ""
    return f"{(run.finished_at - run.started_at).total_seconds():.1f} s"


templates.filters.update(pesos=_pesos, moment=_moment, seconds=_seconds)


@web.get("/", include_in_schema=False)
async def show_page(db: Db) -> Response:
    """Show everything."""
    return await _render("page.html", db)


@web.get("/rows", include_in_schema=False)
async def show_rows(db: Db) -> Response:
    """Show what changes."""
    return await _render("rows.html", db)


async def _render(template: str, db: AsyncSession) -> Response:
    facts = {
        "tenders": await _newest_tenders(db),
        "deliveries": await _latest_deliveries(db),
        "totals": await _totals(db),
        "runs": await _latest_runs(),
        "manifests": await _manifests(),
    }
    content = templates.get_template(template).render(facts)
    return HTMLResponse(content, headers=HEADERS)


async def _newest_tenders(db: AsyncSession) -> list[dict[str, Any]]:
    newest = select(Tender).order_by(Tender.published_at.desc(), Tender.id).limit(SHOWN)
    shown = list(await db.scalars(newest))
    counted = (
        select(NotificationEvent.tender_id, Delivery.status, func.count())
        .join(Delivery, Delivery.event_id == NotificationEvent.id)
        .where(NotificationEvent.tender_id.in_([each.id for each in shown]))
        .group_by(NotificationEvent.tender_id, Delivery.status)
    )
    states: dict[UUID, Counter[str]] = defaultdict(Counter)
    for tender, status, number in (await db.execute(counted)).tuples():
        states[tender][status.value] = number
    return [{"tender": each, "states": sorted(states[each.id].items())} for each in shown]


async def _latest_deliveries(db: AsyncSession) -> list[Any]:
    latest = (
        select(Delivery, Tender.code, Installation)
        .join(NotificationEvent, NotificationEvent.id == Delivery.event_id)
        .join(Installation, Installation.id == Delivery.installation_id)
        .outerjoin(
            Tender,
            (Tender.id == NotificationEvent.tender_id)
            & (Tender.published_at == NotificationEvent.tender_published_at),
        )
        .order_by(Delivery.updated_at.desc(), Delivery.id.desc())
        .limit(SHOWN)
    )
    return list((await db.execute(latest)).tuples())


async def _totals(db: AsyncSession) -> dict[str, int]:
    by_status = select(Delivery.status, func.count()).group_by(Delivery.status)
    states = {status.value: number for status, number in (await db.execute(by_status)).tuples()}
    active = select(func.count()).select_from(Installation).where(Installation.is_active)
    return {
        "tenders": await db.scalar(select(func.count()).select_from(Tender)) or 0,
        "active devices": await db.scalar(active) or 0,
        **dict(sorted(states.items())),
    }


async def _latest_runs() -> list[RunInfo]:
    """Return the latest runs that did something or went wrong: most find nothing to do."""
    latest = await jobs.aio.cycles.runs(limit=RUNS_SEARCHED)
    told = [each for each in latest if each.outcome != "completed" or any(each.counters.values())]
    return told[:SHOWN]


async def _manifests() -> list[Manifest]:
    return await asyncio.to_thread(archive.list, limit=SHOWN)


def _static(name: str, media_type: str) -> Callable[[], Awaitable[Response]]:
    content = resources("tenders").joinpath("static", name).read_bytes()

    async def serve() -> Response:
        return Response(content, headers=HEADERS, media_type=media_type)

    return serve


for _name, _type in STATIC.items():
    web.get(f"/static/{_name}", include_in_schema=False)(_static(_name, _type))
mount_dashboard(web, jobs)
