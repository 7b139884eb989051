"""A worker inside a web application: off unless it was switched on, started and stopped with the application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from holdfast.runtime.background import Background


class EmbeddedWorker:
    """`async with app.worker(): …` runs the background mode beside the block when OUTBOX_WORKER_ENABLED says so."""

    def __init__(self, enabled: bool, make: Callable[[], Background]) -> None:
        self._enabled = enabled
        self._make = make
        self._background: Background | None = None
        self._task: asyncio.Task[object] | None = None

    @property
    def is_running(self) -> bool:
        """Whether jobs are being worked on here."""
        return self._task is not None and not self._task.done()

    async def __aenter__(self) -> EmbeddedWorker:
        if self._enabled:
            self._background = self._make()
            self._task = asyncio.create_task(
                self._background.run(), name="holdfast embedded worker"
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let running handlers end, give back what has not begun. Raises: what ended the worker before its time."""
        if self._background is None or self._task is None:
            return
        self._background.stop("the application stops")
        await self._task
