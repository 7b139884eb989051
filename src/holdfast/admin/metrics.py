"""Metrics for Prometheus: what this process saw, and the gauges of the whole database, read when they are asked for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from holdfast.core.errors import MissingExtra
from holdfast.core.events import Event
from holdfast.observe.measures import MEASURED
from holdfast.ops.health import Health

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from holdfast.observe.prometheus import PrometheusObserver


class Metrics:
    """A registry of its own, made at the first use, so that the extra is needed by those only who use it."""

    def __init__(self) -> None:
        self._registry: CollectorRegistry | None = None
        self._observer: PrometheusObserver | None = None
        self._making = threading.Lock()

    def wants(self, name: str) -> bool:
        """See `core.events.Observer`."""
        return name in MEASURED

    def observe(self, event: Event) -> None:
        """Count an event of this process, if metrics can be had."""
        try:
            observer = self._made()
        except MissingExtra:
            return
        observer.observe(event)

    def render(self, health: Health, is_reaping: bool) -> tuple[bytes, str]:
        """Return the exposition and its media type. Raises: MissingExtra."""
        observer = self._made()
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        observer.set_totals(health.totals, health.now)
        observer.set_fleet(health.workers, is_reaping)
        assert self._registry is not None
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def _made(self) -> PrometheusObserver:
        # The worker's loop and its heartbeat's thread tell their first events together.
        with self._making:
            if self._observer is None:
                from prometheus_client import CollectorRegistry

                from holdfast.observe.prometheus import PrometheusObserver

                self._registry = CollectorRegistry()
                self._observer = PrometheusObserver(self._registry)
            return self._observer
