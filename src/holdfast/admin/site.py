"""The site: what all requests of one process share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request

from holdfast.admin.door import Door
from holdfast.admin.limits import BODY_LIMIT, Rate
from holdfast.admin.live import Live
from holdfast.admin.metrics import Metrics
from holdfast.admin.ticking import LazyTicks
from holdfast.service.service import Service

if TYPE_CHECKING:
    from holdfast.admin.door import Hook
    from holdfast.app import Holdfast
    from holdfast.service.outbox import Ticks
    from holdfast.settings import Settings

RUN_ONCE_PER_SECOND = 0.5
RUN_ONCE_BURST = 5


@dataclass(frozen=True, slots=True)
class Site:
    """Service, door, live stream and limits, put together."""

    service: Service
    door: Door
    live: Live
    metrics: Metrics
    run_once_rate: Rate
    ticks: Ticks
    body_limit: int = BODY_LIMIT

    def address(self, request: Request, path: str) -> str:
        """Return the path of something here, wherever the application is mounted."""
        return f"{request.scope.get('root_path', '').rstrip('/')}{path}"

    async def pause(self, seconds: float) -> None:
        """Let a stream rest between two parts."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """End streams and the tick that runs; connections belong to the application."""
        await self.live.close()
        if isinstance(self.ticks, LazyTicks):
            await self.ticks.close()


def make_site(
    app: Holdfast,
    settings: Settings,
    hook: Hook | None = None,
    ticks: Ticks | None = None,
    body_limit: int = BODY_LIMIT,
    run_once_rate: Rate | None = None,
) -> Site:
    """Put a site together; nothing is connected yet."""
    metrics = Metrics()
    app.observe(metrics)
    chosen = ticks or LazyTicks(app, settings)
    service = Service(app, settings, chosen)
    return Site(
        service=service,
        door=Door(service.tokens, hook),
        live=Live(lambda: app.notifier),
        metrics=metrics,
        run_once_rate=run_once_rate or Rate(RUN_ONCE_PER_SECOND, RUN_ONCE_BURST),
        ticks=chosen,
        body_limit=body_limit,
    )
