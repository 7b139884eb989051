"""Probes: whether the process lives, whether work is being done, and metrics."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from holdfast.admin.call import Call
from holdfast.admin.openapi import document
from holdfast.admin.route import Answer, Route
from holdfast.core.errors import HoldfastError

PATIENCE_S = 2.0
"""Whoever probes does not wait as long as a page's reader would for a database that comes back."""


async def live(call: Call) -> Answer:
    """Say that the process lives; nothing is asked of the database."""
    return Answer({"status": "alive"})


async def ready(call: Call) -> Answer:
    """Say whether jobs are looked after; why not is for those who may look further."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            reason = await call.service.overview.unready()
    except (HoldfastError, TimeoutError):
        reason = "the database is away"
    if reason is None:
        return Answer({"status": "ready"})
    return Answer({"status": "unready", "reason": reason}, 503)


async def metrics(call: Call) -> Response:
    """Expose metrics."""
    health, is_reaping = await call.service.overview.metrics(call.caller)
    body, media = call.site.metrics.render(health, is_reaping)
    return Response(body, media_type=media)


async def openapi(call: Call) -> Answer:
    """Describe the API."""
    return Answer(document(call.site.address(call.request, "") or "/"))


PROBES = (
    Route("GET", "/livez", None, live, "Say that the process lives.", tag="probes"),
    Route(
        "GET",
        "/readyz",
        None,
        ready,
        "Say whether the database answers and somebody takes back what dead workers held.",
        answers=(200, 503),
        tag="probes",
    ),
    Route(
        "GET",
        "/metrics",
        "metrics.read",
        metrics,
        "Expose metrics for Prometheus.",
        answers=(200, 501),
        media="text/plain",
        tag="probes",
    ),
)
"""What a process answers that serves nothing else."""

ROUTES = (
    *PROBES,
    Route(
        "GET", "/api/v1/openapi.json", None, openapi, "Describe the API (OpenAPI 3.1).", tag="api"
    ),
)
