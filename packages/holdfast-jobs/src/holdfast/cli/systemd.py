"""systemd's protocol for services of `Type=notify`: ready, stopping, and alive for as long as the loops turn."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

from holdfast.core.events import Event

Answer: TypeAlias = Callable[[Callable[[], None]], None]
"""Calls back once everything that must be alive has answered."""

_STATES = {"worker_started": "READY=1", "worker_stopping": "STOPPING=1"}


class ServiceNotifier:
    """Observes a worker and tells systemd; without systemd it does nothing.

    It takes the variables out of the environment: processes that are started from here are no services.
    """

    def __init__(self) -> None:
        address = os.environ.pop("NOTIFY_SOCKET", "")
        # An @ begins a name in Linux's abstract namespace.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        interval_us = os.environ.pop("WATCHDOG_USEC", "")
        is_ours = os.environ.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._interval_s = int(interval_us) / 2e6 if interval_us.isdigit() and is_ours else 0.0

    def wants(self, name: str) -> bool:
        """See `core.events.Observer`."""
        return name in _STATES

    def observe(self, event: Event) -> None:
        """Pass on that the worker has started, or is stopping."""
        self.send(_STATES[event.name])

    def send(self, state: str) -> None:
        """Send a state, if systemd is there to hear it."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
                link.sendto(state.encode(), socket.MSG_DONTWAIT, self._address)

    @asynccontextmanager
    async def keep_alive(self, answer: Answer) -> AsyncIterator[None]:
        """Ask twice per watchdog interval, and ping when it is answered: without answers, systemd restarts us."""

        async def ask() -> None:
            while self._interval_s:
                answer(lambda: self.send("WATCHDOG=1"))
                await asyncio.sleep(self._interval_s)

        asking = asyncio.create_task(ask(), name="holdfast systemd watchdog")
        try:
            yield
        finally:
            asking.cancel()
