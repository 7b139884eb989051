"""Serves the application with uvicorn; open streams end first when it stops."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette

from holdfast.core.errors import ConfigError
from holdfast.web.app import create_probes
from holdfast.web.disconnect import SIGNALS, stop_event

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.settings import Settings

GRACE_S = 5


class Server(uvicorn.Server):
    """A server that knows its address once it listens and ends its streams before it stops.

    One that is embedded leaves signals to its process. `root_path` is the prefix that a proxy strips. Proxy headers
    are not trusted: callers behind a proxy need a token.
    """

    def __init__(
        self,
        served: Starlette,
        host: str,
        port: int,
        root_path: str = "",
        is_embedded: bool = False,
    ) -> None:
        config = uvicorn.Config(
            served,
            host=host,
            port=port,
            root_path=root_path,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_S,
            lifespan="on",
        )
        super().__init__(config)
        self._served = served
        self._signals = () if is_embedded else SIGNALS
        self._listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn, which would end the whole process here. Raises: ConfigError when the port is taken."""
        try:
            await super().startup(sockets)
        except SystemExit:
            raise ConfigError(
                f"port {self.config.port} on {self.config.host} is already in use or not allowed",
                help="choose another port, or 0 for any free one",
            ) from None
        finally:
            self._listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn, which waits for open requests: those that wait for a chain are answered now."""
        stopping = stop_event()
        stopping.set()
        try:
            await self._served.state.site.broadcaster.close()
            await super().shutdown(sockets)
        finally:
            # The loop of one that is embedded goes on.
            stopping.clear()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at the usual signals and then exit cleanly."""
        loop = asyncio.get_running_loop()
        for each in self._signals:
            loop.add_signal_handler(each, self.handle_exit, each, None)
        try:
            yield
        finally:
            for each in self._signals:
                loop.remove_signal_handler(each)

    async def address(self) -> str | None:
        """Wait until it listens and return its address; None when it could not."""
        await self._listening.wait()
        if not self.started:
            return None
        name = self.servers[0].sockets[0].getsockname()
        host = f"[{name[0]}]" if ":" in name[0] else name[0]
        return f"http://{host}:{name[1]}/"


@asynccontextmanager
async def serve_probes(
    app: Holdfast, settings: Settings, host: str, port: int
) -> AsyncIterator[str]:
    """Serve probes for as long as the block lasts; yields their address. Raises: ConfigError when the port is taken."""
    served = create_probes(app, settings)
    server = Server(served, host, port, is_embedded=True)
    task = asyncio.create_task(server.serve(), name="holdfast probes")
    try:
        address = await server.address()
        if address is None:
            await task
            raise ConfigError(f"the probes on {host} did not start")
        yield address
    finally:
        server.should_exit = True
        await asyncio.gather(task, return_exceptions=True)
