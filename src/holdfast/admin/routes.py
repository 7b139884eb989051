"""Every route of the API in one table. A route that is not here is not served."""

from __future__ import annotations

from holdfast.admin import probes
from holdfast.admin.api import chains, dead, fleet, jobs, streams, subscriptions, whole
from holdfast.admin.route import Route

ROUTES: tuple[Route, ...] = (
    *probes.ROUTES,
    *whole.ROUTES,
    *jobs.ROUTES,
    *chains.ROUTES,
    *dead.ROUTES,
    *fleet.ROUTES,
    *subscriptions.ROUTES,
    *streams.ROUTES,
)
