"""The dashboard as its users meet it: served by uvicorn on a free port of this machine."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from holdfast.app import Holdfast
from holdfast.settings import read_settings
from holdfast.web.app import create
from tests.support.until import PATIENCE_S


class _Server(uvicorn.Server):
    """A server that says when it is ready."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@contextmanager
def served(app: Holdfast) -> Iterator[str]:
    """Serve an application's dashboard; the address is where to look."""
    site = create(app, settings=read_settings({}))
    config = uvicorn.Config(site, log_level="warning", timeout_graceful_shutdown=1)
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
