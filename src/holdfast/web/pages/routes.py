"""The pages as data: address, the action whose role decides, and who answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from starlette.responses import Response

from holdfast.web.pages.chains import chain, move_chain
from holdfast.web.pages.dead_letters import dead, move_dead
from holdfast.web.pages.fleet import cycles, move_cycle, move_type, move_worker, types, workers
from holdfast.web.pages.jobs import job, jobs, move_jobs
from holdfast.web.pages.overview import overview
from holdfast.web.pages.page_context import Visit
from holdfast.web.pages.system import audit, move_subscription, system, tail

Handler = Callable[[Visit], Awaitable[Response]]


class PageRoute(NamedTuple):
    """One page or one form. The least of `actions` is needed; which one it is, a form's field says."""

    method: Literal["GET", "POST"]
    path: str
    actions: tuple[str, ...]
    handler: Handler


ROUTES = (
    PageRoute("GET", "/", ("overview.read",), overview),
    PageRoute("GET", "/jobs", ("job.list",), jobs),
    PageRoute("GET", "/jobs/{id}", ("job.get",), job),
    PageRoute("POST", "/jobs/move", ("job.retry", "job.cancel", "job.run_now"), move_jobs),
    PageRoute("GET", "/chains/{id}", ("chain.get",), chain),
    PageRoute("POST", "/chains/{id}", ("chain.cancel", "chain.delete"), move_chain),
    PageRoute("GET", "/dead", ("dead.list",), dead),
    PageRoute("POST", "/dead", ("dead.redrive", "dead.drop"), move_dead),
    PageRoute("GET", "/types", ("type.list",), types),
    PageRoute("POST", "/types", ("type.pause", "type.resume"), move_type),
    PageRoute("GET", "/workers", ("worker.list",), workers),
    PageRoute("POST", "/workers", ("worker.drain",), move_worker),
    PageRoute("GET", "/cycles", ("cycle.list",), cycles),
    PageRoute("POST", "/cycles", ("cycle.pause", "cycle.resume", "cycle.run_now"), move_cycle),
    PageRoute("GET", "/audit", ("audit.list",), audit),
    PageRoute("GET", "/system", ("system.read",), system),
    PageRoute("POST", "/system", ("subscription.remove",), move_subscription),
    PageRoute("GET", "/tail", ("tail.read",), tail),
)
