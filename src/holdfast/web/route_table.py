"""Every route of the API in one table. A route that is not here is not served."""

from __future__ import annotations

from holdfast.web import probes
from holdfast.web.api import chains, dead_letters, fleet, jobs, overview, streams, subscriptions
from holdfast.web.route import Route

ROUTES: tuple[Route, ...] = (
    *probes.ROUTES,
    *overview.ROUTES,
    *jobs.ROUTES,
    *chains.ROUTES,
    *dead_letters.ROUTES,
    *fleet.ROUTES,
    *subscriptions.ROUTES,
    *streams.ROUTES,
)
