"""Makes the ASGI application: the API and the dashboard, to be served alone or mounted into another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.routing import Route as StarletteRoute

from holdfast.settings import load_settings
from holdfast.web.dispatch import endpoint, missing
from holdfast.web.middleware import BODY_LIMIT, Guarded, Rate
from holdfast.web.probes import PROBES
from holdfast.web.route import Route
from holdfast.web.route_table import ROUTES
from holdfast.web.state import Site, make_site

if TYPE_CHECKING:
    from holdfast.admin.legacy_stats import Ticks
    from holdfast.app import Holdfast
    from holdfast.settings import Settings
    from holdfast.web.authentication import Hook
    from holdfast.web.dispatch import Absent


def create(
    app: Holdfast,
    *,
    settings: Settings | None = None,
    authenticate: Hook | None = None,
    ticks: Ticks | None = None,
    dashboard: bool = True,
    body_limit: int = BODY_LIMIT,
    run_once_rate: Rate | None = None,
) -> Starlette:
    """Make the application over an application's database.

    authenticate: the host application's word on who asks; it gets the request and returns a
    Principal or None. Without it tokens decide, and until the first token is made only this machine
    may come in. ticks: who runs ticks in this process, if somebody does; otherwise run-once has its
    own. The database stays the caller's to close; so is the site (`served.state.site.close()`) where
    it is mounted, because servers run the lifespan of the outermost application only.
    """
    site = make_site(
        app, settings or load_settings(), authenticate, ticks, body_limit, run_once_rate
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await site.close()

    pages, absent = _dashboard(site) if dashboard else ([], missing)
    served = Starlette(
        routes=[*_served(site, ROUTES), *pages],
        middleware=[Middleware(Guarded)],
        exception_handlers={404: absent, 405: absent},
        lifespan=lifespan,
    )
    served.router.redirect_slashes = False
    served.state.site = site
    return served


def create_probes(app: Holdfast, settings: Settings) -> Starlette:
    """Make an application of the probes alone, for a process that does something else."""
    site = make_site(app, settings)
    served = Starlette(
        routes=_served(site, PROBES),
        middleware=[Middleware(Guarded)],
        exception_handlers={404: missing, 405: missing},
    )
    served.state.site = site
    return served


def _served(site: Site, routes: Iterable[Route]) -> list[BaseRoute]:
    return [
        StarletteRoute(route.path, endpoint(site, route), methods=[route.method])
        for route in routes
    ]


def _dashboard(site: Site) -> tuple[list[BaseRoute], Absent]:
    from holdfast.web.pages.page_dispatch import page_missing, page_routes

    return page_routes(site), page_missing(site)
