"""Makes the durable functions due that wait for a signal which has come."""

from __future__ import annotations

from holdfast.storage.database import Link
from holdfast.worker.background_loops import BackgroundLoop
from holdfast.worker.heartbeat import HeartbeatEvents
from holdfast.worker.worker_context import WorkerContext

ROUTED_AT_ONCE = 500
ROUNDS = 20


class SignalRouter(BackgroundLoop):
    """A background loop; it queries nothing until it is woken, by a hint, or by a heartbeat that found a signal.

    A signal is only appended, in a transaction that may be open for long, so that it waits for nobody and
    nobody waits for it. Any worker routes it then, whatever types it handles.
    """

    def __init__(self, context: WorkerContext, link: Link, events: HeartbeatEvents) -> None:
        super().__init__(context, link, context.wakes.signals)
        self._events = events

    async def run(self) -> None:
        """Route what has come until stopped."""
        while True:
            await self._context.clock.wait(self._wake, None)
            self._wake.clear()
            if self._stopping.is_set():
                return
            with self._context.health.report(self._link.purpose):
                await self.route(self._link)

    async def route(self, link: Link) -> None:
        """Route what has come. Raises: the database's errors; a heartbeat then finds it again.

        What waits behind a lock stays, and is found again too.
        """
        signals = self._context.store.signals
        for _ in range(ROUNDS):
            woken = await link.run(signals.route(ROUTED_AT_ONCE))
            if woken:
                self._events.on_woken(woken)
            if self._stopping.is_set() or not await link.run(signals.has_fresh()):
                return
