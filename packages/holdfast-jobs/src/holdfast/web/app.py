"""Creates the ASGI application, to be served alone or mounted into another, and what all its requests share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute
from starlette.routing import Route as StarletteRoute

from holdfast.admin.service import Service
from holdfast.core.errors import InvalidOption
from holdfast.extensions import import_name, modules_of
from holdfast.settings import load_settings
from holdfast.web.api.streams import Broadcaster, StreamLimit
from holdfast.web.authentication import Authenticator
from holdfast.web.dispatch import make_endpoint, not_found
from holdfast.web.middleware import BODY_LIMIT, RateLimit, RequestMiddleware
from holdfast.web.openapi import ROUTES
from holdfast.web.probes import PROBES, ProcessMetrics
from holdfast.web.route import Route

if TYPE_CHECKING:
    from starlette.requests import Request

    from holdfast.app import Holdfast
    from holdfast.settings import Settings
    from holdfast.web.authentication import Hook
    from holdfast.web.dispatch import NotFoundHandler

RUN_ONCE_PER_SECOND = 0.5
RUN_ONCE_BURST = 5


@dataclass(frozen=True, slots=True)
class Site:
    """The dependencies of the handlers of one served application."""

    service: Service
    authenticator: Authenticator
    broadcaster: Broadcaster
    stream_limit: StreamLimit
    metrics: ProcessMetrics
    run_once_rate: RateLimit
    body_limit: int = BODY_LIMIT
    sign_in_url: str | None = None

    async def close(self) -> None:
        """End streams, the work of extensions and a running tick; connections belong to the application."""
        await self.broadcaster.close()
        await self.service.close()


class Pages(NamedTuple):
    """What a dashboard is served with: its routes, and the handler of addresses that nothing has."""

    routes: Sequence[BaseRoute]
    on_missing: NotFoundHandler


def build_site(
    app: Holdfast,
    settings: Settings,
    hook: Hook | None = None,
    body_limit: int = BODY_LIMIT,
    run_once_rate: RateLimit | None = None,
    sign_in_url: str | None = None,
) -> Site:
    """Create a site; no connection is opened yet."""
    metrics = ProcessMetrics()
    app.observe(metrics)
    service = Service(app, settings)
    return Site(
        service=service,
        authenticator=Authenticator(service.tokens, hook),
        broadcaster=Broadcaster(lambda: app.notifier),
        stream_limit=StreamLimit(
            settings.holdfast.streams, settings.holdfast.streams_per_principal
        ),
        metrics=metrics,
        run_once_rate=run_once_rate or RateLimit(RUN_ONCE_PER_SECOND, RUN_ONCE_BURST),
        body_limit=body_limit,
        sign_in_url=sign_in_url,
    )


def create(
    app: Holdfast,
    *,
    settings: Settings | None = None,
    authenticate: Hook | None = None,
    sign_in_url: str | None = None,
    dashboard: bool = True,
    body_limit: int = BODY_LIMIT,
    run_once_rate: RateLimit | None = None,
) -> Starlette:
    """Create the dashboard and API of an application.

    authenticate: the host application's own authentication; it gets the request and returns a
    Principal or None. Without it tokens are required, and until the first token is created only this
    machine has access. sign_in_url: where browsers without a principal are sent, with the page they
    wanted as `next`; without it, to Holdfast's own form for tokens. The caller closes the database,
    and the site too (`served.state.site.close()`) where it is mounted: servers run only the outermost
    application's lifespan. To mount it in one call, see `holdfast.contrib.starlette.mount_dashboard`.

    Raises: InvalidOption for a sign_in_url without authenticate.
    """
    if sign_in_url is not None and authenticate is None:
        raise InvalidOption(
            "sign_in_url has no effect without authenticate",
            help="also pass authenticate=…, which identifies signed-in users",
        )
    site = build_site(
        app, settings or load_settings(), authenticate, body_limit, run_once_rate, sign_in_url
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await site.close()

    pages = _pages(site) if dashboard else Pages([], not_found)
    served = Starlette(
        routes=[*_endpoints(site, ROUTES), *pages.routes],
        middleware=[Middleware(RequestMiddleware)],
        exception_handlers={404: pages.on_missing, 405: pages.on_missing},
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


def _pages(site: Site) -> Pages:
    """Return the pages of the dashboard that is installed, or one that says how to get it."""
    for name in modules_of("dashboard"):
        pages: Pages = import_name(name)(site)
        return pages
    return Pages([StarletteRoute("/", _no_dashboard)], not_found)


async def _no_dashboard(_: Request) -> PlainTextResponse:
    return PlainTextResponse(
        'The API is served here. The dashboard is another package: pip install "holdfast-jobs[web]"\n'
    )
