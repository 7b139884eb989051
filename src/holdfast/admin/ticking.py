"""Ticks by hand: the application's own tick, put together at the first wish for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.runtime.summary import TickSkipped, TickSummary

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.runtime.tick import Tick
    from holdfast.settings import Settings


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
