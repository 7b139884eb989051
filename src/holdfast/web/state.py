"""The site: what all requests of one process share.

Ticks by hand: the application's own tick, put together at the first wish for one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request

from holdfast.admin.service import Service
from holdfast.scheduler.tick_summary import TickSkipped, TickSummary
from holdfast.web.authentication import Door
from holdfast.web.broadcaster import Live
from holdfast.web.middleware import BODY_LIMIT, Rate
from holdfast.web.probes import Metrics

if TYPE_CHECKING:
    from holdfast.admin.legacy_stats import Ticks
    from holdfast.app import Holdfast
    from holdfast.scheduler.tick import Tick
    from holdfast.settings import Settings
    from holdfast.web.authentication import Hook

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


class LazyTicks:
    """See `service.outbox.Ticks`. A process that never ticks by hand never builds one."""

    def __init__(self, app: Holdfast, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._tick: Tick | None = None

    async def run_once(self) -> TickSummary | TickSkipped:
        if self._tick is None:
            handled = [each.name for each in self._app.registry if each.handler is not None]
            self._tick = self._app.assembly(self._settings, types=handled).tick()
        return await self._tick.run_once()

    async def close(self) -> None:
        """Let a running tick end within its grace and give its connection up."""
        if self._tick is not None:
            await self._tick.close(self._settings.worker.shutdown_timeout_ms / 1000)
