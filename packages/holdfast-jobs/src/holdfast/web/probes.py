"""Probes: liveness, readiness and Prometheus metrics."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.responses import Response

from holdfast.commands.health import Health
from holdfast.core.errors import HoldfastError, MissingExtra
from holdfast.core.events import Event
from holdfast.observe.metrics import MEASURED, LimitGauges
from holdfast.web.route import ApiResponse, BoundRequest, Route

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from holdfast.observe.prometheus import PrometheusObserver


TIMEOUT_S = 2.0
"""A probe must not wait for an unreachable database as long as a page does."""


class ProcessMetrics:
    """This process's counters and the whole database's gauges, in a registry created at first use.

    Only those who use metrics need the extra.
    """

    def __init__(self) -> None:
        self._registry: CollectorRegistry | None = None
        self._observer: PrometheusObserver | None = None
        self._lock = threading.Lock()

    def wants(self, name: str) -> bool:
        """See `core.events.Observer`."""
        return name in MEASURED

    def observe(self, event: Event) -> None:
        """Count an event of this process, if the extra is installed."""
        try:
            observer = self._get_observer()
        except MissingExtra:
            return
        observer.observe(event)

    def render(
        self, health: Health, is_reaping: bool, limits: Sequence[LimitGauges] = ()
    ) -> tuple[bytes, str]:
        """Return the exposition and its media type. Raises: MissingExtra."""
        observer = self._get_observer()
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        observer.set_totals(health.totals, health.now, health.unreadable)
        observer.set_fleet(health.workers, is_reaping)
        observer.set_limits(limits)
        assert self._registry is not None
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def _get_observer(self) -> PrometheusObserver:
        # The worker's loop and its heartbeat's thread may emit their first events together.
        with self._lock:
            if self._observer is None:
                # First, because it says which extra is missing.
                from holdfast.observe.prometheus import PrometheusObserver

                from prometheus_client import CollectorRegistry  # isort: skip

                self._registry = CollectorRegistry()
                self._observer = PrometheusObserver(self._registry)
            return self._observer


async def live(request: BoundRequest) -> ApiResponse:
    """Liveness: the process is running."""
    return ApiResponse({"status": "alive"})


async def ready(request: BoundRequest) -> ApiResponse:
    """Readiness: the database responds and a reaper is running."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reason = await request.service.overview.unready()
    except (HoldfastError, TimeoutError):
        reason = "the database is unreachable"
    if reason is None:
        return ApiResponse({"status": "ready"})
    return ApiResponse({"status": "unready", "reason": reason}, 503)


async def metrics(request: BoundRequest) -> Response:
    """Expose metrics for Prometheus."""
    health, is_reaping = await request.service.overview.metrics(request.caller)
    limits = await request.service.limits.gauges(request.caller)
    body, media = request.site.metrics.render(health, is_reaping, limits)
    return Response(body, media_type=media)


PROBES = (
    Route("GET", "/livez", None, live),
    Route("GET", "/readyz", None, ready, answers=(200, 503)),
    Route("GET", "/metrics", "metrics.read", metrics, answers=(200, 501), media="text/plain"),
)
