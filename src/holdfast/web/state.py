"""What all requests of one process share: the service, authentication, the stream of hints, and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.admin.service import Service
from holdfast.scheduler.runner import TickSkipped, TickSummary
from holdfast.web.authentication import Authenticator
from holdfast.web.broadcaster import Broadcaster
from holdfast.web.middleware import BODY_LIMIT, RateLimit
from holdfast.web.probes import ProcessMetrics

if TYPE_CHECKING:
    from holdfast.admin.overview import Ticks
    from holdfast.app import Holdfast
    from holdfast.scheduler.tick import Tick
    from holdfast.settings import Settings
    from holdfast.web.authentication import Hook

RUN_ONCE_PER_SECOND = 0.5
RUN_ONCE_BURST = 5


@dataclass(frozen=True, slots=True)
class Site:
    """The dependencies of the handlers of one served application."""

    service: Service
    authenticator: Authenticator
    broadcaster: Broadcaster
    metrics: ProcessMetrics
    run_once_rate: RateLimit
    ticks: Ticks
    body_limit: int = BODY_LIMIT

    async def close(self) -> None:
        """End streams and a running tick; connections belong to the application."""
        await self.broadcaster.close()
        if isinstance(self.ticks, LazyTicks):
            await self.ticks.close()


def build_site(
    app: Holdfast,
    settings: Settings,
    hook: Hook | None = None,
    ticks: Ticks | None = None,
    body_limit: int = BODY_LIMIT,
    run_once_rate: RateLimit | None = None,
) -> Site:
    """Create a site; no connection is opened yet."""
    metrics = ProcessMetrics()
    app.observe(metrics)
    chosen = ticks or LazyTicks(app, settings)
    service = Service(app, settings, chosen)
    return Site(
        service=service,
        authenticator=Authenticator(service.tokens, hook),
        broadcaster=Broadcaster(lambda: app.notifier),
        metrics=metrics,
        run_once_rate=run_once_rate or RateLimit(RUN_ONCE_PER_SECOND, RUN_ONCE_BURST),
        ticks=chosen,
        body_limit=body_limit,
    )


class LazyTicks:
    """See `admin.legacy_stats.Ticks`: the application's own tick, built at first use."""

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
        """Let a running tick end within its grace period and release its connection."""
        if self._tick is not None:
            await self._tick.close(self._settings.worker.shutdown_timeout_ms / 1000)
