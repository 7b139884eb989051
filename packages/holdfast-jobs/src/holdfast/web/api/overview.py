"""The overview over HTTP, and the outbox under the names of its first users."""

from __future__ import annotations

from holdfast.admin.access import LOCAL
from holdfast.admin.serializers import health_json, plain
from holdfast.core.errors import Unauthenticated
from holdfast.core.statistics import STEPS_MS
from holdfast.web.route import ApiResponse, BoundRequest, Param, Route


async def get(request: BoundRequest) -> ApiResponse:
    """Show current and recent queue status."""
    found = await request.service.overview.get(request.caller, request["window"])
    return ApiResponse(
        {
            "sentence": found.sentence,
            "health": health_json(found.health),
            "window": found.window,
            "p95_wait_seconds": _seconds(found.p95_wait_us),
            "median_wait_seconds": _seconds(found.median_wait_us),
            "series": [plain(each) for each in found.series],
        }
    )


async def outbox_stats(request: BoundRequest) -> ApiResponse:
    """Show queue, runtime and configuration of the outbox."""
    _require_token(request)
    return ApiResponse(await request.service.outbox.stats(request.caller))


async def outbox_run_once(request: BoundRequest) -> ApiResponse:
    """Run one tick in this process; reports if one is already running."""
    _require_token(request)
    request.site.run_once_rate.acquire()
    return ApiResponse(await request.service.outbox.run_once(request.caller))


def _require_token(request: BoundRequest) -> None:
    """Refuse access by loopback alone: the outbox's first users were promised 401 without a token."""
    if request.caller.principal is LOCAL:
        raise Unauthenticated("the request has no valid token")


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1_000_000


_WINDOW = Param("window", "query", text="How far back.", default="1h", choices=tuple(STEPS_MS))

ROUTES = (
    Route("GET", "/api/v1/overview", "overview.read", get, (_WINDOW,)),
    Route("GET", "/api/settings/events/outbox/stats", "outbox.stats", outbox_stats, tag="outbox"),
    Route(
        "POST",
        "/api/settings/events/outbox/run-once",
        "outbox.run_once",
        outbox_run_once,
        answers=(429,),
        tag="outbox",
    ),
)
