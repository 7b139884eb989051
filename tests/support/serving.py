"""An ASGI application as its users meet it: served by uvicorn on a free port of this machine."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from tests.support.until import PATIENCE_S


class _Server(uvicorn.Server):
    """A server that says when it is ready, or that it never will be."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@contextmanager
def serve(application: Any) -> Iterator[str]:
    """Serve an application; the address is where to look."""
    config = uvicorn.Config(application, log_level="warning", timeout_graceful_shutdown=1)
    server = _Server(config)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
        thread.start()
        try:
            assert server.ready.wait(PATIENCE_S), "the server did not start"
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
