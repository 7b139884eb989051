"""Probes: liveness, readiness and Prometheus metrics."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.responses import Response

from holdfast.core.errors import (
    DatabaseError,
    DatabaseUnreachable,
    HoldfastError,
    MissingExtra,
    RoleRefused,
)
from holdfast.core.events import Event
from holdfast.observe.metrics import MEASURED
from holdfast.web.route import ApiResponse, BoundRequest, Route

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from holdfast.admin.overview import DatabaseFigures
    from holdfast.observe.prometheus import PrometheusObserver

log = logging.getLogger("holdfast.web")

TIMEOUT_S = 2.0
"""A probe must not wait for an unreachable database as long as a page does."""

FIGURES_S = 4.0
"""Figures of a busy database may take longer; Prometheus gives up after ten seconds."""


class ProcessMetrics:
    """This process's counters and the whole database's gauges, in a registry created at first use.

    Only those who use metrics need the extra.
    """

    def __init__(self) -> None:
        self._registry: CollectorRegistry | None = None
        self._observer: PrometheusObserver | None = None
        self._expected: tuple[Sequence[str], Sequence[str]] = ((), ())
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

    def expect(self, types: Sequence[str], cycles: Sequence[str]) -> None:
        """Start the counters of these at 0 in what is rendered."""
        self._expected = types, cycles

    def render(self, figures: DatabaseFigures | None) -> tuple[bytes, str]:
        """Return the exposition and its media type; without figures the database is away. Raises: MissingExtra."""
        observer = self._get_observer()
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        observer.expect(*self._expected)
        observer.set_up(figures is not None)
        if figures is None:
            observer.forget_database()
        else:
            _set_figures(observer, figures)
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
    except RoleRefused as error:
        reason = f"{error.message}; see `holdfast explain {error.code}`"
    except (HoldfastError, TimeoutError):
        reason = "the database is unreachable"
    if reason is None:
        return ApiResponse({"status": "ready"})
    return ApiResponse({"status": "unready", "reason": reason}, 503)


async def metrics(request: BoundRequest) -> Response:
    """Expose metrics for Prometheus; while the database is away, those of the process alone."""
    figures = None if request.offline else await _read_figures(request)
    body, media = request.site.metrics.render(figures)
    return Response(body, media_type=media)


async def _read_figures(request: BoundRequest) -> DatabaseFigures | None:
    try:
        async with asyncio.timeout(FIGURES_S):
            return await request.service.overview.metrics(request.caller)
    except DatabaseUnreachable:
        return None
    except (DatabaseError, TimeoutError) as error:
        log.warning(
            "metrics without figures of the database: %s", str(error) or "no answer in time"
        )
        return None


def _set_figures(observer: PrometheusObserver, figures: DatabaseFigures) -> None:
    health = figures.health
    observer.set_totals(health.totals, health.now, health.unreadable)
    observer.set_fleet(health.workers, figures.is_reaping)
    observer.set_types(figures.types)
    observer.set_limits(figures.limits)
    observer.set_lateness(figures.late_us)
    observer.set_waits(figures.waits)
    if figures.retention is not None:
        observer.set_retention(figures.retention)


PROBES = (
    Route("GET", "/livez", None, live),
    Route("GET", "/readyz", None, ready, answers=(503,)),
    Route(
        "GET", "/metrics", "metrics.read", metrics, answers=(501,), media="text/plain", offline=True
    ),
)
