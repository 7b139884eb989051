"""Holdfast in a Starlette application: its lifespan, the dashboard, and problem documents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

from holdfast.core.errors import HoldfastError, InvalidOption, MissingExtra

try:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Lifespan
except ImportError as error:
    raise MissingExtra(
        "Holdfast in a web application needs starlette", help='pip install "holdfast-jobs[web]"'
    ) from error

from holdfast.app import Holdfast
from holdfast.extensions import modules_of
from holdfast.settings import Settings
from holdfast.web.app import Site, create
from holdfast.web.authentication import Hook
from holdfast.web.disconnect import before_stop, stop_event
from holdfast.web.middleware import given_request_id
from holdfast.web.problems import problem_response


def lifespan(
    jobs: Holdfast, *, dashboard: Starlette | None = None, wrap: Lifespan[Any] | None = None
) -> Lifespan[Any]:
    """Return a lifespan that checks the schema, runs the embedded worker if it is enabled, and closes everything.

    dashboard: one that you mounted yourself; `mount_dashboard` closes its own. wrap: your own lifespan; it starts
    before the worker and ends after it, so that handlers can use what it opens. Requests that wait are answered as
    soon as the process is asked to stop.

    Starting raises: SchemaTooOld, SchemaTooNew, DatabaseUnreachable, ConfigError.
    """

    @asynccontextmanager
    async def run(app: Any) -> AsyncIterator[Mapping[str, Any] | None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(jobs.aclose)
            await asyncio.to_thread(jobs.database.check)
            state = None if wrap is None else await stack.enter_async_context(wrap(app))
            await stack.enter_async_context(jobs.worker())
            if dashboard is not None:
                await stack.enter_async_context(_serve_site(_site_of(dashboard)))
            stack.callback(stop_event().clear)
            stack.enter_context(before_stop(stop_event().set))
            yield state

    return cast(Lifespan[Any], run)


def mount_dashboard(
    app: Starlette,
    jobs: Holdfast,
    path: str = "/holdfast",
    *,
    authenticate: Hook | None = None,
    sign_in_url: str | None = None,
    settings: Settings | None = None,
) -> Starlette:
    """Mount the dashboard and its API into an application whose lifespan then also closes it; return the dashboard.

    authenticate and sign_in_url: as for `holdfast.web.app.create`. Call it before the application starts.

    Raises: InvalidOption for a sign_in_url without authenticate; MissingExtra.
    """
    if not modules_of("dashboard"):
        raise MissingExtra(
            "the dashboard is not installed", help='pip install "holdfast-jobs[web]"'
        )
    dashboard = create(jobs, settings=settings, authenticate=authenticate, sign_in_url=sign_in_url)
    app.mount(path, dashboard)
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def with_dashboard(app: Any) -> AsyncIterator[Mapping[str, Any] | None]:
        async with inner(app) as state, _serve_site(_site_of(dashboard)):
            yield state

    app.router.lifespan_context = cast(Lifespan[Any], with_dashboard)
    return dashboard


async def problem_handler(request: Request, error: Exception) -> Response:
    """Respond to a HoldfastError with its problem document: `exception_handlers={HoldfastError: problem_handler}`."""
    if not isinstance(error, HoldfastError):
        raise error
    return problem_response(error, given_request_id(request))


@asynccontextmanager
async def _serve_site(site: Site) -> AsyncIterator[None]:
    """Close a dashboard at the end of the block, and its streams already when the process is asked to stop."""
    with before_stop(site.broadcaster.end_streams):
        try:
            yield
        finally:
            await site.close()


def _site_of(dashboard: Starlette) -> Site:
    site = getattr(dashboard.state, "site", None)
    if not isinstance(site, Site):
        raise InvalidOption(
            "the dashboard is not a Holdfast dashboard",
            help="pass the result of holdfast.web.app.create",
        )
    return site
