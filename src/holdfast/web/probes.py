"""Metrics for Prometheus: what this process saw, and the gauges of the whole database, read when they are asked for.

Probes: whether the process lives, whether work is being done, and metrics.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from starlette.responses import Response

from holdfast.commands.health import Health
from holdfast.core.errors import HoldfastError, MissingExtra
from holdfast.core.events import Event
from holdfast.observe.metrics import MEASURED
from holdfast.web.bound_request import Call
from holdfast.web.openapi import document
from holdfast.web.route import Answer, Route

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from holdfast.observe.prometheus import PrometheusObserver


class Metrics:
    """A registry of its own, made at the first use, so that the extra is needed by those only who use it."""

    def __init__(self) -> None:
        self._registry: CollectorRegistry | None = None
        self._observer: PrometheusObserver | None = None
        self._making = threading.Lock()

    def wants(self, name: str) -> bool:
        """See `core.events.Observer`."""
        return name in MEASURED

    def observe(self, event: Event) -> None:
        """Count an event of this process, if metrics can be had."""
        try:
            observer = self._made()
        except MissingExtra:
            return
        observer.observe(event)

    def render(self, health: Health, is_reaping: bool) -> tuple[bytes, str]:
        """Return the exposition and its media type. Raises: MissingExtra."""
        observer = self._made()
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        observer.set_totals(health.totals, health.now)
        observer.set_fleet(health.workers, is_reaping)
        assert self._registry is not None
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def _made(self) -> PrometheusObserver:
        # The worker's loop and its heartbeat's thread tell their first events together.
        with self._making:
            if self._observer is None:
                from prometheus_client import CollectorRegistry

                from holdfast.observe.prometheus import PrometheusObserver

                self._registry = CollectorRegistry()
                self._observer = PrometheusObserver(self._registry)
            return self._observer


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
