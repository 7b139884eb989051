"""Telemetry: observers turn the catalogue's events into logs, metrics and spans; here, several of them as one."""

from __future__ import annotations

from logging import getLogger

from holdfast.core.events import Event, Observer, wants_of

log = getLogger("holdfast.observe")


class CompositeObserver:
    """Passes events to each of its observers; one that raises is logged once and does not affect the others."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self._wants = [wants_of(each) for each in observers]
        self._reported: set[int] = set()

    def wants(self, name: str) -> bool:
        """See `core.events.Observer`."""
        return any(wants(name) for wants in self._wants)

    def observe(self, event: Event) -> None:
        """See `core.events.Observer`."""
        for place, observer in enumerate(self._observers):
            try:
                if self._wants[place](event.name):
                    observer.observe(event)
            except Exception:
                if place not in self._reported:
                    self._reported.add(place)
                    name = type(observer).__name__
                    log.exception(
                        "%s failed on %s; further errors are not logged", name, event.name
                    )
