"""Creates the ASGI application: the API and the dashboard, to be served alone or mounted into another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.routing import Route as StarletteRoute

from holdfast.settings import load_settings
from holdfast.web.dispatch import make_endpoint, not_found
from holdfast.web.middleware import BODY_LIMIT, RateLimit, RequestMiddleware
from holdfast.web.openapi import ROUTES
from holdfast.web.probes import PROBES
from holdfast.web.route import Route
from holdfast.web.state import Site, build_site

if TYPE_CHECKING:
    from holdfast.admin.overview import Ticks
    from holdfast.app import Holdfast
    from holdfast.settings import Settings
    from holdfast.web.authentication import Hook
    from holdfast.web.dispatch import NotFoundHandler


def create(
    app: Holdfast,
    *,
    settings: Settings | None = None,
    authenticate: Hook | None = None,
    ticks: Ticks | None = None,
    dashboard: bool = True,
    body_limit: int = BODY_LIMIT,
    run_once_rate: RateLimit | None = None,
) -> Starlette:
    """Create the dashboard and API of an application.

    authenticate: the host application's own authentication; it gets the request and returns a
    Principal or None. Without it tokens are required, and until the first token is created only this
    machine has access. ticks: what runs ticks in this process, if anything does; otherwise run-once
    has its own. The caller closes the database, and the site too (`served.state.site.close()`) where
    it is mounted: servers run only the outermost application's lifespan.
    """
    site = build_site(
        app, settings or load_settings(), authenticate, ticks, body_limit, run_once_rate
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await site.close()

    pages, on_missing = _dashboard(site) if dashboard else ([], not_found)
    served = Starlette(
        routes=[*_endpoints(site, ROUTES), *pages],
        middleware=[Middleware(RequestMiddleware)],
        exception_handlers={404: on_missing, 405: on_missing},
        lifespan=lifespan,
    )
    served.router.redirect_slashes = False
    served.state.site = site
    return served


def create_probes(app: Holdfast, settings: Settings) -> Starlette:
    """Create an application of the probes alone, for a process whose work is something else."""
    site = build_site(app, settings)
    served = Starlette(
        routes=_endpoints(site, PROBES),
        middleware=[Middleware(RequestMiddleware)],
        exception_handlers={404: not_found, 405: not_found},
    )
    served.state.site = site
    return served


def _endpoints(site: Site, routes: Iterable[Route]) -> list[BaseRoute]:
    return [
        StarletteRoute(route.path, make_endpoint(site, route), methods=[route.method])
        for route in routes
    ]


def _dashboard(site: Site) -> tuple[list[BaseRoute], NotFoundHandler]:
    from holdfast.web.pages.page_dispatch import page_not_found, page_routes

    return page_routes(site), page_not_found(site)
