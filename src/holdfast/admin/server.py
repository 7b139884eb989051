"""Serves the application with uvicorn; open streams end first when it is told to stop."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

GRACE_S = 5
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Server(uvicorn.Server):
    """A server that tells its address once it listens, and its streams to end before it stops."""

    def __init__(self, config: uvicorn.Config, served: Starlette) -> None:
        super().__init__(config)
        self._served = served
        self._listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        try:
            await super().startup(sockets)
        finally:
            self._listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        await self._served.state.site.live.close()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at the usual signals, and then end as a process that did what it was told."""
        loop = asyncio.get_running_loop()
        for each in SIGNALS:
            loop.add_signal_handler(each, self.handle_exit, each, None)
        try:
            yield
        finally:
            for each in SIGNALS:
                loop.remove_signal_handler(each)

    async def address(self) -> str | None:
        """Wait until it listens and return where; None when it could not."""
        await self._listening.wait()
        if not self.started:
            return None
        name = self.servers[0].sockets[0].getsockname()
        host = f"[{name[0]}]" if ":" in name[0] else name[0]
        return f"http://{host}:{name[1]}/"


def make_server(served: Starlette, host: str, port: int) -> Server:
    """Make a server. Headers of proxies are not believed: whoever is behind one needs a token."""
    config = uvicorn.Config(
        served,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_S,
        lifespan="on",
    )
    return Server(config, served)
