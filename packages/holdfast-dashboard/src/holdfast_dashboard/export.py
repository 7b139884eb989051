"""What a filter finds, whole, as CSV or JSON: read page by page and sent as it is read."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse

from holdfast.web.route import FILTER, BoundRequest, Param, Route

MAX_ROWS = 100_000
PAGE = 500
MAX_PAGES = 1_000
"""Where an export ends; a filter without an index finds little on each of its pages."""

COLUMNS = (
    *("id", "chain_id", "chain_index", "type", "state", "key", "priority", "attempt"),
    *("max_attempts", "crashes", "created_at", "planned_at", "available_at", "started_at"),
    *("finished_at", "worker", "error", "fingerprint", "trace"),
)
Rows = list[dict[str, Any]]

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


async def export(request: BoundRequest) -> Response:
    """Send the jobs that match a filter as CSV or JSON, newest first, without payloads; at most 100,000."""
    pages = _pages(request)
    # Read before the response begins: a filter that is refused has a status of its own.
    first: Rows = await anext(pages, [])

    async def all_pages() -> AsyncIterator[Rows]:
        yield first
        async for page in pages:
            yield page

    is_csv = request["format"] == "csv"
    name = "jobs.csv" if is_csv else "jobs.json"
    return StreamingResponse(
        (_csv if is_csv else _json)(all_pages()),
        media_type="text/csv; charset=utf-8" if is_csv else "application/json",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def _pages(request: BoundRequest) -> AsyncIterator[Rows]:
    """Read page by page; one that found nothing may have others after it."""
    after, rows = None, 0
    for _ in range(MAX_PAGES):
        page = await request.service.jobs.page(request.caller, request["filter"], PAGE, after)
        yield list(page.items)[: MAX_ROWS - rows]
        rows, after = rows + len(page.items), page.next
        if after is None or rows >= MAX_ROWS:
            return


async def _csv(pages: AsyncIterator[Rows]) -> AsyncIterator[str]:
    yield csv_lines([COLUMNS])
    async for page in pages:
        yield csv_lines([each[name] for name in COLUMNS] for each in page)


def csv_lines(rows: Iterable[Iterable[Any]]) -> str:
    """Write rows as CSV; what a spreadsheet would take for a formula is marked as text."""
    out = io.StringIO()
    csv.writer(out).writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


async def _json(pages: AsyncIterator[Rows]) -> AsyncIterator[bytes]:
    yield b"["
    mark = b""
    async for page in pages:
        if page:
            yield mark + b",\n".join(map(msgspec.json.encode, page))
            mark = b",\n"
    yield b"]"


_FORMAT = Param("format", "query", text="csv or json.", default="csv", choices=("csv", "json"))

ROUTES = (
    Route(
        "GET",
        "/api/v1/jobs/export",
        "job.list",
        export,
        (FILTER, _FORMAT),
        media="text/csv",
        other_noun="jobs",
    ),
)
